"""The command `fatura` in processes of its own, for the tests that watch, stop and kill them; no tests live here."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from fatura.store.vault import new_key
from tests.support.postgres_processes import is_running, until

KEY_RING = new_key()
"""The secret keys of all processes of a test run."""
START_SECONDS = 30
STOP_SECONDS = 25


def environment(database_url: str | None = None, **variables: str) -> dict[str, str]:
    """Return an environment of which no variable of Fatura's comes from outside."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FATURA_")}
    found = {**inherited, "FATURA_LOG_FORMAT": "json", "COLUMNS": "200", "PYTHONUNBUFFERED": "1", **variables}
    if database_url is not None:
        found |= {"FATURA_DATABASE_URL": database_url, "FATURA_SECRET_KEYS": KEY_RING}
    return found


def run(*arguments: str, env: dict[str, str], cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "fatura", *arguments],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@dataclass(frozen=True, slots=True)
class Running:
    """A command that runs until it is told to stop; what it says goes to a file."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def said(self) -> str:
        """Return what it and its children have printed so far."""
        return self.output.read_text()

    def kill(self) -> None:
        """End it as a power cut would: it can do nothing about it."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def children(self) -> dict[str, int]:
        """Return the process ids of its `fatura` children by command."""
        listed = subprocess.run(
            ["ps", "-ww", "--no-headers", "-o", "pid=,args=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        words = [line.split() for line in listed.stdout.splitlines() if "-m fatura " in line]
        return {each[each.index("fatura") + 1]: int(each[0]) for each in words}


@contextmanager
def running(*arguments: str, env: dict[str, str], output: Path, module: str = "fatura") -> Generator[Running]:
    """Start a command, and end it with the test whatever becomes of it."""
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
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def serves(port: int) -> bool:
    """Say whether the API on a port is fit for traffic."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def is_open(port: int) -> bool:
    """Say whether anybody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
