"""How far this host's clock is off the database's, without asking before every batch (D-5)."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

ASK_AGAIN_SECONDS = 1
"""How long an answer counts, unless this host's clock was set meanwhile: asking takes a connection of its own."""
SET_BY_SECONDS = 0.1
"""A clock that went so much faster or slower than the monotonic one since the answer was set."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One answer: how far off the clock was, and when that was, by both clocks of this host."""

    skew: timedelta
    real_now: datetime
    monotonic: float


class ClockTrust:
    """Remembers the last answer; one for each process."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seen: _Seen | None = None

    async def skew(self, clock: Callable[[], datetime], ask: Callable[[], Awaitable[datetime]]) -> timedelta:
        """Return the database's time, which `ask` returns, less this host's."""
        seen, real_now, monotonic = self._seen, clock(), time.monotonic()
        if seen is not None and monotonic - seen.monotonic < ASK_AGAIN_SECONDS:
            passed = timedelta(seconds=monotonic - seen.monotonic)
            if abs(real_now - seen.real_now - passed) < timedelta(seconds=SET_BY_SECONDS):
                return seen.skew
        skew = await ask() - clock()
        self._seen = _Seen(skew, clock(), time.monotonic())
        return skew
