"""Run `fatura up` on a free port with a temporary data folder. The generated clients call this engine."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.contract.process import DEV_BIN, ToolError

READY_WITHIN_SECONDS = 120
STOPS_WITHIN_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine with one sandbox account."""

    url: str
    api_key: str


@contextmanager
def running() -> Generator[Engine]:
    """Run an engine. Raises ToolError if it does not become ready."""
    with TemporaryDirectory(prefix="fatura-contract-") as folder:
        own = {name: value for name, value in os.environ.items() if not name.startswith("FATURA_")}
        environment = {**own, "FATURA_DATA_DIR": folder}
        key = _open_account(environment)
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        with (Path(folder) / "up.log").open("w+", encoding="utf-8") as log:
            words = [DEV_BIN / "fatura", "up", "--port", str(port)]
            process = subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT)
            try:
                _await_ready(process, f"http://127.0.0.1:{port}", Path(log.name))
                yield Engine(f"http://127.0.0.1:{port}", key)
            finally:
                process.terminate()
                process.wait(STOPS_WITHIN_SECONDS)


def _open_account(environment: dict[str, str]) -> str:
    _fatura("migrate", environment=environment)
    opened = _fatura(
        "account", "create", "Contract", "--mode", "sandbox", "--json", environment=environment
    )  # fmt: skip
    return json.loads(opened.splitlines()[-1])["apiKey"]


def _fatura(*words: str, environment: dict[str, str]) -> str:
    """Run a command and return its output. Raises ToolError if it fails."""
    ended = subprocess.run(
        [DEV_BIN / "fatura", *words], env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise ToolError(f"`fatura {words[0]}` failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up_at = time.monotonic() + READY_WITHIN_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        try:
            with urllib.request.urlopen(f"{url}/health/ready", timeout=5):  # noqa: S310 - a local address
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise ToolError(f"the engine did not get ready:\n{log.read_text('utf-8')}")
