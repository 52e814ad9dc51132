"""Limits the rate of requests with one API key, and of webhooks for one gateway connection (D-48).

Each process counts its own requests.
"""

import math
import time
from collections.abc import Callable

from fatura.domain.errors import RATE_LIMITED, EngineError

BURST_SECONDS = 2
"""An idle key may send a burst: as many requests at once as its rate allows in this many seconds (D-48)."""
FEWEST_REMEMBERED = 1024


class RateLimiter:
    """A token bucket for each key, stored as the time when the bucket will be full again.

    Full buckets are removed. Otherwise, webhooks with invented connection ids could fill the memory, because a webhook
    is counted before its signature is checked.
    """

    __slots__ = ("_clock", "_full_at", "_limit", "_rate")

    def __init__(self, requests_per_second: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """A rate of 0 means no limit. `clock` returns seconds."""
        self._rate = requests_per_second
        self._clock = clock
        self._full_at: dict[str, float] = {}
        self._limit = FEWEST_REMEMBERED

    def take(self, key: str, *, who: str = "This API key") -> None:
        """Count one request of a key, or refuse it. The message of a refusal begins with `who`.

        Raises EngineError: `engine.rate_limited` with `retry_after_seconds`.
        """
        if self._rate == 0:
            return
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + 1 / self._rate
        wait_seconds = full_at - now - BURST_SECONDS
        if wait_seconds > _ROUNDING_SECONDS:
            raise EngineError(
                RATE_LIMITED,
                f"{who} may make {self._rate} requests per second; slow down.",
                retry_after_seconds=math.ceil(wait_seconds),
            )
        self._full_at[key] = full_at
        if len(self._full_at) > self._limit:
            self._forget_full(now)

    def _forget_full(self, now: float) -> None:
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        self._limit = max(FEWEST_REMEMBERED, 2 * len(self._full_at))


_ROUNDING_SECONDS = 1e-6
"""Tolerance for rounding errors in sums of fractions of a second."""
