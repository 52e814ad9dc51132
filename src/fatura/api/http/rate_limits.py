"""The rate limit of each API key, per process (D-48)."""

import math
import time
from collections.abc import Callable

from fatura.domain.errors import RATE_LIMITED, EngineError

BURST_SECONDS = 2
"""A key that was idle may ask for this many seconds' worth at once: twice the rate (D-48)."""
FEWEST_REMEMBERED = 1024


class RateLimiter:
    """A token bucket per key, each kept as one number: the instant at which the bucket will be full again.

    Full buckets are forgotten, and those of strangers (webhooks are counted before they are read) soon are.
    """

    __slots__ = ("_clock", "_full_at", "_limit", "_rate")

    def __init__(self, requests_per_second: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Limit to a rate; 0 is no limit. `clock` counts seconds."""
        self._rate = requests_per_second
        self._clock = clock
        self._full_at: dict[str, float] = {}
        self._limit = FEWEST_REMEMBERED

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._full_at)

    def take(self, key: str, *, who: str = "This API key") -> None:
        """Take one request of a key's, or of whoever else it stands for.

        Raises EngineError: `engine.rate_limited`, with when to ask again.
        """
        if self._rate == 0:
            return
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + 1 / self._rate
        wait_seconds = full_at - now - BURST_SECONDS
        if wait_seconds > _ROUNDING_SECONDS:
            raise EngineError(
                RATE_LIMITED,
                f"{who} may ask {self._rate} times a second; slow down and go on.",
                retry_after_seconds=math.ceil(wait_seconds),
            )
        self._full_at[key] = full_at
        if len(self._full_at) > self._limit:
            self._forget_full(now)

    def _forget_full(self, now: float) -> None:
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        self._limit = max(FEWEST_REMEMBERED, 2 * len(self._full_at))


_ROUNDING_SECONDS = 1e-6
"""How far sums of fractions of a second may be off."""
