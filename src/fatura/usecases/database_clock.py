"""Read the database's clock instead of the host's, and refuse to work if they differ too much (D-5)."""

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


class DatabaseClock:
    """Returns the database's time. Each process has one instance.

    The time is the host's time plus a correction. A measurement yields a range for the correction, because its query
    takes time. The correction changes only if it is outside this range. Otherwise, the time would jump at each
    measurement.
    """

    __slots__ = ("_correction", "_is_wrong", "_last", "host")

    def __init__(self, host: Callable[[], datetime]) -> None:
        """`host` returns the host's real UTC time."""
        self.host = host
        self._correction = timedelta()
        self._last: _Measurement | None = None
        self._is_wrong = False

    def __call__(self) -> datetime:
        return self.host() + self._correction

    async def skew(self, ask_database: Callable[[], Awaitable[datetime]]) -> timedelta:
        """Return the database's time minus the host's."""
        last, real_now, monotonic = self._last, self.host(), time.monotonic()
        if last is not None and monotonic - last.monotonic < CACHE_SECONDS:
            passed = timedelta(seconds=monotonic - last.monotonic)
            if abs(real_now - last.real_now - passed) < JUMP:
                return last.skew
        there, received_at = await ask_database(), self.host()
        least, most = there - received_at, there - real_now
        self._correction = min(max(self._correction, least), most)
        self._last = _Measurement(least, received_at, time.monotonic())
        return least

    async def check(
        self, ask_database: Callable[[], Awaitable[datetime]], *, at_most: timedelta = MAX_CLOCK_SKEW
    ) -> None:
        """Compare the clocks. Log once that this host's clock is wrong, and once that it is right again.

        Raises WrongClockError if the clocks differ by more than `at_most`.
        """
        skew = await self.skew(ask_database)
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
