"""The difference between the database's clock and this host's, cached for a second (D-5)."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

CACHE_SECONDS = 1
"""How long a measurement is cached, because each measurement opens a database connection."""
JUMP = timedelta(seconds=0.1)
"""If the real-time and monotonic clocks have diverged by this much since the last measurement, measure again."""


@dataclass(frozen=True, slots=True)
class _Measurement:
    skew: timedelta
    real_now: datetime
    monotonic: float


class ClockSkew:
    """Measures the difference between the two clocks and caches it; each process has one instance."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: _Measurement | None = None

    async def get(
        self, clock: Callable[[], datetime], database_clock: Callable[[], Awaitable[datetime]]
    ) -> timedelta:
        """Return the database's time minus this host's."""
        last, real_now, monotonic = self._last, clock(), time.monotonic()
        if last is not None and monotonic - last.monotonic < CACHE_SECONDS:
            passed = timedelta(seconds=monotonic - last.monotonic)
            if abs(real_now - last.real_now - passed) < JUMP:
                return last.skew
        skew = await database_clock() - clock()
        self._last = _Measurement(skew, clock(), time.monotonic())
        return skew
