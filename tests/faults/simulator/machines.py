"""The simulated machines, the event loop and the trace of a world. The trace lists all executed steps."""

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
"""After this many real seconds without finished I/O, PostgreSQL is queried for lock waits."""


@dataclass(slots=True, eq=False)
class Host:
    """A simulated machine. When a machine dies, its tasks never continue."""

    name: str
    alive: bool = True
    frozen_until: datetime | None = None


HOST: ContextVar[Host] = ContextVar("host")
"""The machine of the running task."""


class Trace:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line)

    @property
    def length(self) -> int:
        return len(self._lines)

    @property
    def digest(self) -> str:
        return blake2b("\n".join(self._lines).encode(), digest_size=16).hexdigest()

    def tail(self, count: int) -> list[str]:
        return self._lines[-count:]


class _Selector(selectors.DefaultSelector):
    """Waits for I/O only when no task is ready, which makes the order of the tasks deterministic."""

    on_quiet: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> "list[tuple[selectors.SelectorKey, int]]":
        """Return finished I/O. Wait only if no task is ready. Call `on_quiet` if no I/O ends within QUIET_SECONDS."""
        if timeout is not None and timeout <= 0:
            return []
        found = super().select(None if self.on_quiet is None else QUIET_SECONDS)
        if not found and self.on_quiet is not None:
            self.on_quiet()
        return found


class WorldLoop(asyncio.SelectorEventLoop):
    """An event loop that uses the world's time."""

    seconds = 0.0

    def __init__(self) -> None:
        self._of_world = _Selector()
        super().__init__(self._of_world)

    def time(self) -> float:
        return self.seconds

    async def done_or_quiet(self, running: asyncio.Future[Any]) -> None:
        """Wait until `running` has ended, or until no I/O has ended for QUIET_SECONDS."""
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
    """An awaitable that lets all ready tasks run once, as `asyncio.sleep(0)` does.

    `asyncio.sleep(0)` itself cannot be used, because the module `determinism` replaces it during a simulation.
    """

    def __await__(self) -> Generator[None]:
        yield


async def drain_ready() -> None:
    """Run the loop until only I/O or the clock can make progress."""
    ready = attrgetter("_ready")(asyncio.get_running_loop())
    turn = _Turn()
    await turn
    while ready:
        await turn
