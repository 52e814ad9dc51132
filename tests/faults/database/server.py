"""A PostgreSQL server with durable settings. The runs kill, suspend and restart the server."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg

from fatura import postgres
from tests.support.postgres_processes import is_running, postmaster, sweep, until

MAX_CONNECTIONS = 40
SETTINGS = {"fsync": "on", "synchronous_commit": "on", "max_connections": str(MAX_CONNECTIONS)}


@dataclass(slots=True, eq=False)
class Server:
    """A server that can be started again at the same address."""

    folder: Path
    settings: dict[str, str]
    _uses: list[postgres.Server] = field(default_factory=list[postgres.Server])

    @property
    def url(self) -> str:
        return self._uses[-1].url

    @property
    def owner_url(self) -> str:
        """The URL of the superuser, over the Unix socket."""
        return self.url.replace("//fatura@", "//postgres@", 1)

    def start(self) -> None:
        self._uses.append(postgres.start(self.folder, settings=self.settings))

    def stop(self) -> None:
        for use in self._uses:
            use.stop()

    def postmaster(self) -> int:
        return postmaster(self.folder)

    def children(self) -> Sequence[int]:
        pid = self.postmaster()
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def backends(self) -> Sequence[int]:
        async with self.owner() as owner:
            rows = await owner.fetch("SELECT pid FROM pg_stat_activity WHERE usename = 'fatura'")
        return [row["pid"] for row in rows]

    @asynccontextmanager
    async def owner(self) -> AsyncGenerator[Any]:
        connection = await asyncpg.connect(self.owner_url, timeout=10)
        try:
            yield connection
        finally:
            connection.terminate()

    async def returned(self, *, within_seconds: float = 60) -> float:
        """Wait until the engine's role can connect. Return the monotonic time."""
        return await accepts_connections(self.url, within_seconds=within_seconds)

    def kill(self) -> None:
        victim, children = self.postmaster(), self.children()
        os.kill(victim, signal.SIGKILL)
        until(lambda: not any(map(is_running, [victim, *children])), seconds=30)

    @contextmanager
    def frozen(self) -> Generator[None]:
        pids = [self.postmaster(), *self.children()]
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)


@contextmanager
def server(
    folder: Path,
    settings: dict[str, str] | None = None,
    *,
    before: Callable[[Path], None] = lambda _folder: None,
) -> Generator[Server]:
    """Run a server during the block.

    A first start creates the data folder. `before` may then change this folder, while the server is stopped.
    """
    started = Server(folder, {**SETTINGS, **(settings or {})})
    try:
        started.start()
        started.stop()
        before(folder)
        started.start()
        yield started
        started.stop()
    finally:
        sweep(folder)


async def accepts_connections(url: str, *, within_seconds: float) -> float:
    """Wait until a server accepts connections. Return the monotonic time.

    Raises the driver's error if the server still refuses connections after `within_seconds`.
    """
    give_up_at = monotonic() + within_seconds
    while True:
        try:
            connection = await asyncpg.connect(url, timeout=2)
            connection.terminate()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            if monotonic() > give_up_at:
                raise
            await asyncio.sleep(0.05)
        else:
            return monotonic()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
