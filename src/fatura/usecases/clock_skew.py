"""Measure how much this host's clock differs from the database's, and refuse to work if they differ too much (D-5)."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fatura.failure_text import OwnTextError
from fatura.observability import log

MAX_CLOCK_SKEW = timedelta(seconds=30)
"""Maximum difference from the database's clock at which this host may write and run lanes (D-5)."""
MAX_PUSH_SKEW = timedelta(seconds=15)
"""Maximum difference from the database's clock at which this host may deliver events.

This is less than MAX_CLOCK_SKEW: if one worker's clock was 30 s fast and another's 30 s slow, both could hold the lease
of one endpoint at the same time. The events of an invoice could then arrive out of order.
"""
CACHE_SECONDS = 1
"""How long a measurement is cached. Without the cache, every transaction would ask the database for its time."""
JUMP = timedelta(seconds=0.1)
"""If the real-time and monotonic clocks have diverged by this much since the cached measurement, measure again."""


class WrongClockError(OwnTextError):
    """This host's clock differs too much from the database's clock. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Measurement:
    skew: timedelta
    real_now: datetime
    monotonic: float


class ClockSkew:
    """Measures how much the clocks of this host and the database differ. Each process has one instance."""

    __slots__ = ("_is_wrong", "_last")

    def __init__(self) -> None:
        self._last: _Measurement | None = None
        self._is_wrong = False

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

    async def check(
        self,
        clock: Callable[[], datetime],
        database_clock: Callable[[], Awaitable[datetime]],
        *,
        at_most: timedelta = MAX_CLOCK_SKEW,
    ) -> None:
        """Compare the clocks. Log once that this host's clock is wrong, and once that it is right again.

        Raises WrongClockError if the clocks differ by more than `at_most`.
        """
        skew = await self.get(clock, database_clock)
        if abs(skew) <= at_most:
            if self._is_wrong and abs(skew) <= MAX_PUSH_SKEW:
                self._is_wrong = False
                log.info("clock.right")
            return
        reason = (
            f"this host's clock differs by {abs(skew).total_seconds():.0f} s from the database's clock, "
            f"more than {at_most.total_seconds():.0f} s; set both by NTP"
        )
        if not self._is_wrong:
            self._is_wrong = True
            log.error("clock.wrong", reason=reason)
        raise WrongClockError(reason)
