"""A clock that all processes of a fault run share. It may run faster than real time."""

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
    """A UTC clock that shows `start` at monotonic time `since` and then runs `speed` times as fast as real time.

    All processes of a machine read the same monotonic time, so their clocks agree. The file `jumps` contains the total
    number of seconds by which the clock was set forward. One process writes this file, and all processes read it.
    """

    start: datetime
    since: float
    speed: float
    jumps: str = ""

    def __call__(self) -> datetime:
        return self.start + timedelta(
            seconds=(time.monotonic() - self.since) * self.speed + self.jumped_seconds()
        )

    def jumped_seconds(self) -> float:
        return _SECONDS.unpack_from(_mapped(self.jumps))[0] if self.jumps else 0

    def jump(self, seconds: float) -> None:
        """Set the clock forward. Only one process may call this."""
        _SECONDS.pack_into(_mapped(self.jumps), 0, self.jumped_seconds() + seconds)

    def __str__(self) -> str:
        return f"{self.start.isoformat()}|{self.since!r}|{self.speed!r}|{self.jumps}"

    def real_seconds(self, seconds: float) -> float:
        return seconds / self.speed


@cache
def _mapped(path: str) -> mmap.mmap:
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), _SECONDS.size)


def started(
    *, speed: float, at: datetime = datetime(2033, 11, 20, 15, tzinfo=UTC), jumps: Path | None = None
) -> FastClock:
    """Return a clock that shows `at` at the time of this call. If `jumps` is a file, the clock can be set forward."""
    if jumps is not None:
        jumps.write_bytes(bytes(_SECONDS.size))
    return FastClock(at, time.monotonic(), speed, str(jumps or ""))


def read(text: str) -> FastClock:
    """Parse a clock from a command line argument (the inverse of `str`)."""
    start, since, speed, jumps = text.split("|")
    return FastClock(datetime.fromisoformat(start), float(since), float(speed), jumps)
