"""The machines of a simulated world, the loop that all their tasks run in, and the trace of what they did."""

import asyncio
import selectors
from collections.abc import Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from operator import attrgetter
from typing import Any

QUIET_SECONDS = 0.002
"""Real seconds without an answer after which PostgreSQL is asked whether a statement waits for a lock."""


@dataclass(slots=True, eq=False)
class Host:
    """A machine of the world; the tasks of one that is dead never move again."""

    name: str
    alive: bool = True
    frozen_until: datetime | None = None


HOST: ContextVar[Host] = ContextVar("host")
"""On which machine the running task is."""


class Trace:
    """Everything that happened, line by line."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)

    @property
    def length(self) -> int:
        """Return how many lines there are."""
        return len(self._lines)

    @property
    def digest(self) -> str:
        """Return what stands for the whole of it."""
        return blake2b("\n".join(self._lines).encode(), digest_size=16).hexdigest()

    def tail(self, count: int) -> list[str]:
        """Return the last lines."""
        return self._lines[-count:]


class _Selector(selectors.DefaultSelector):
    """Looks for what arrived only when nothing is left to run, so that neither comes between the other."""

    on_quiet: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> "list[tuple[selectors.SelectorKey, int]]":
        """Return what arrived, waiting for it unless something may run; `on_quiet` is told when that takes a while."""
        if timeout is not None and timeout <= 0:
            return []
        found = super().select(None if self.on_quiet is None else QUIET_SECONDS)
        if not found and self.on_quiet is not None:
            self.on_quiet()
        return found


class WorldLoop(asyncio.SelectorEventLoop):
    """An event loop whose seconds are the world's: a deadline of the engine's comes when the world says so."""

    seconds = 0.0

    def __init__(self) -> None:
        self._of_world = _Selector()
        super().__init__(self._of_world)

    def time(self) -> float:
        """Return the world's seconds."""
        return self.seconds

    async def done_or_quiet(self, running: asyncio.Future[Any]) -> None:
        """Wait until some I/O ends, or nothing has arrived for QUIET_SECONDS of the real clock."""
        woken = self.create_future()

        def wake(_running: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        running.add_done_callback(wake)
        self._of_world.on_quiet = wake
        await woken
        self._of_world.on_quiet = None
        running.remove_done_callback(wake)


class _Turn:
    """Gives everything that is ready its turn, once; `asyncio.sleep` is the world's, and slower."""

    def __await__(self) -> Generator[None]:
        yield


async def drain_ready() -> None:
    """Let the loop run whatever is ready, until only I/O or the clock can bring more."""
    ready = attrgetter("_ready")(asyncio.get_running_loop())
    turn = _Turn()
    await turn
    while ready:
        await turn
