"""Processes that use an embedded PostgreSQL, for tests that kill them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg

from tests.support.databases import as_superuser

IS_ROOT = os.geteuid() == 0

_USER = r"""
import os, signal, sys
from pathlib import Path
from fatura.postgres import EmbeddedPostgresError, start

data_dir, bin_dir, uid = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\n"))
if uid:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
try:
    with start(data_dir, bin_dir=Path(bin_dir) if bin_dir else None) as server:
        print(server.url, flush=True)
        sys.stdin.readline()
except EmbeddedPostgresError as error:
    print("error:", error, flush=True)
"""


class User:
    """A process that starts, uses and stops the server of a data folder."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def says(self) -> str:
        """Return the next line of the process's output: the URL of the server, or an error."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def leave(self) -> int:
        """Close the process's stdin, which makes it stop using the server. Return its exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(60)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def using(data_dir: Path, *, bin_dir: str = "", uid: int = 0) -> Generator[User]:
    """Start a process that uses the server of a data folder. The process has its own process group."""
    command = [sys.executable, "-c", _USER, str(data_dir), bin_dir, str(uid)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    )
    try:
        yield User(process)
    finally:
        process.kill()
        process.wait(20)
        for pipe in (process.stdin, process.stdout):
            assert pipe
            pipe.close()


def value(url: str, sql: str, **settings: Any) -> Any:
    """Run a query and return its single value."""

    async def ask() -> Any:
        connection = await asyncpg.connect(url, timeout=10, **settings)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(ask())


def allow_os_user(url: str, name: str, *, role: str = "fatura") -> None:
    """Let the operating system user `name` connect to an embedded server as the role `role`."""

    def allow() -> None:
        superuser = as_superuser(url)
        # The server runs in its data folder, so the name of the file needs no path.
        value(superuser, f"COPY (SELECT 'fatura {name} {role}') TO PROGRAM 'cat >> pg_ident.conf'")
        value(superuser, "SELECT pg_reload_conf()")

    with ThreadPoolExecutor() as pool:  # `value` needs a thread without an event loop
        pool.submit(allow).result()


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def is_running(pid: int) -> bool:
    """Return whether a process is running. A zombie process counts as ended."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] not in {"", "Z"}


def until(condition: Callable[[], bool], *, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def sweep(data_dir: Path) -> None:
    """Kill the server of a data folder if a failed test has left it running."""
    with suppress(OSError, ValueError, IndexError):
        os.kill(postmaster(data_dir), signal.SIGQUIT)
