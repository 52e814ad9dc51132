"""Run the command `fatura` in tests, in its own process or in this one."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from unittest.mock import patch

from structlog.testing import capture_logs

from fatura.cli import main
from fatura.store.vault import new_key
from tests.support.postgres_processes import is_running, until

KEY_RING = new_key()
"""The key ring of every command that uses a test's database."""
START_SECONDS = 120
STOP_SECONDS = 120


def environment(database_url: str | None = None, **variables: str) -> dict[str, str]:
    """Return the environment for a command. It inherits none of this process's FATURA_ variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FATURA_")}
    found = {**inherited, "FATURA_LOG_FORMAT": "json", "COLUMNS": "200", "PYTHONUNBUFFERED": "1", **variables}
    if database_url is not None:
        found |= {"FATURA_DATABASE_URL": database_url, "FATURA_SECRET_KEYS": KEY_RING}
    return found


def run(*arguments: str, env: dict[str, str], cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "fatura", *arguments],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=480,
    )


def written_credentials(said: str) -> str:
    """Return the text of the file in which a command without a terminal has written new credentials."""
    named = re.search(r"credentials are in (\S+),", said)
    assert named, said
    path = Path(named[1])
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text()


def run_here(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process, which is faster than starting Python. Its logs are discarded."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.dict(os.environ, env, clear=True),
        patch.object(sys, "argv", ["fatura", *arguments]),
        patch("fatura.cli.options.configure_logs"),
        capture_logs(),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@dataclass(frozen=True, slots=True)
class Running:
    """A running command; its output goes to a file."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def said(self) -> str:
        """Return the output so far, including the output of child processes."""
        return self.output.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def children(self) -> dict[str, int]:
        """Return the process id of each `fatura` child process by its command, such as `worker`."""
        listed = subprocess.run(
            ["ps", "-ww", "--no-headers", "-o", "pid=,args=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        words = [line.split() for line in listed.stdout.splitlines() if "-m fatura " in line]
        return {each[each.index("fatura") + 1]: int(each[0]) for each in words}


def stop_all(processes: Sequence[Running]) -> list[int]:
    """Send SIGTERM to all processes, wait until they have ended, and return their exit codes."""
    for each in processes:
        each.process.terminate()
    return [each.process.wait(STOP_SECONDS) for each in processes]


@contextmanager
def running(*arguments: str, env: dict[str, str], output: Path, module: str = "fatura") -> Generator[Running]:
    """Run a command during the block, then kill it, and wait until its child processes end by themselves."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    started = Running(process, output)
    children: dict[str, int] = {}
    try:
        yield started
        children = started.children()
    finally:
        process.kill()
        process.wait(STOP_SECONDS)
        until(lambda: not any(is_running(pid) for pid in children.values()), seconds=STOP_SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def serves(port: int) -> bool:
    """Return whether an API on this port is ready."""
    # httpx.get would first load all CA certificates, which is slow
    connection = HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
