"""The world outside as a child process: how it starts, and that it ends with the run."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.clock import FastClock
from tests.faults.gateway.lies import Lies
from tests.faults.outside import SECRETS_FILE


def tell_secrets(folder: Path, secrets: Mapping[str, Sequence[str]]) -> None:
    """Let the merchant know by which secrets each account's calls are signed, before the first one."""
    (folder / SECRETS_FILE).write_text(json.dumps(secrets))


@contextmanager
def outside(folder: Path, *, clock: FastClock, lies: Lies) -> Generator[str]:
    """Run it with its journal in a folder, and yield its address."""
    if not (folder / SECRETS_FILE).exists():
        tell_secrets(folder, {})
    words = [sys.executable, "-m", "tests.faults.outside", str(folder), str(clock), str(lies)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            assert url, "the world outside did not start"
            yield url
        finally:
            process.kill()
