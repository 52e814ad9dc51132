"""The machines of a simulated world, the loop that all their tasks run in, and the trace of what they did."""

import asyncio
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from operator import attrgetter

KEPT_LINES = 400


@dataclass(slots=True, eq=False)
class Host:
    """A machine of the world; the tasks of one that is dead never move again."""

    name: str
    alive: bool = True
    frozen_until: datetime | None = None


HOST: ContextVar[Host] = ContextVar("host")
"""On which machine the running task is."""


class Trace:
    """Everything that happened, as a rolling hash and its last lines."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.length = 0

    def add(self, line: str) -> None:
        """Add a line."""
        self._hash.update(line.encode() + b"\n")
        self.lines.append(line)
        self.length += 1

    @property
    def digest(self) -> str:
        """Return what stands for the whole of it."""
        return self._hash.hexdigest()


class WorldLoop(asyncio.SelectorEventLoop):
    """An event loop whose seconds are the world's: a deadline of the engine's comes when the world says so."""

    seconds = 0.0

    def time(self) -> float:
        """Return the world's seconds."""
        return self.seconds


async def python_rests() -> None:
    """Let the loop run whatever is ready, until only I/O or the clock can bring more."""
    ready = attrgetter("_ready")(asyncio.get_running_loop())
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - no event says that nothing is ready
        await asyncio.sleep(0)
