"""A clock that all processes of a run share, and that may run faster than the world's."""

import mmap
import struct
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

_SECONDS = struct.Struct("d")


@dataclass(frozen=True, slots=True)
class FastClock:
    """UTC as `start` when the machine's monotonic clock showed `since`, and `speed` seconds a second from then on.

    The monotonic clock is one for all processes of a machine, so that they agree without talking. With a file it can
    also be set forward, for all of them at once.
    """

    start: datetime
    since: float
    speed: float
    jumps: str = ""

    def __call__(self) -> datetime:
        """Return the time."""
        return self.start + timedelta(
            seconds=(time.monotonic() - self.since) * self.speed + self.jumped_seconds()
        )

    def jumped_seconds(self) -> float:
        """Return how far it was set forward in all."""
        return _SECONDS.unpack_from(_mapped(self.jumps))[0] if self.jumps else 0

    def jump(self, seconds: float) -> None:
        """Set it forward; one process alone may do that."""
        _SECONDS.pack_into(_mapped(self.jumps), 0, self.jumped_seconds() + seconds)

    def __str__(self) -> str:
        """Return it as a process is told on its command line."""
        return f"{self.start.isoformat()}|{self.since!r}|{self.speed!r}|{self.jumps}"

    def real_seconds(self, seconds: float) -> float:
        """Return how long so many of its seconds take."""
        return seconds / self.speed


@cache
def _mapped(path: str) -> mmap.mmap:
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), _SECONDS.size)


def started(
    *, speed: float, at: datetime = datetime(2033, 11, 20, 15, tzinfo=UTC), jumps: Path | None = None
) -> FastClock:
    """Return a clock that shows `at` now; `jumps` is the file, made here, by which it can be set forward."""
    if jumps is not None:
        jumps.write_bytes(bytes(_SECONDS.size))
    return FastClock(at, time.monotonic(), speed, str(jumps or ""))


def read(text: str) -> FastClock:
    """Return the clock that a process was told of."""
    start, since, speed, jumps = text.split("|")
    return FastClock(datetime.fromisoformat(start), float(since), float(speed), jumps)
