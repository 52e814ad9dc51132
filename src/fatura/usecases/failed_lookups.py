"""Limit the failed look-ups of each account's API keys: those that find a key unknown, revoked or expired (D-240)."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

from fatura.domain.errors import RATE_LIMITED, EngineError

LOOKUP_SECONDS = 0.1
"""Minimum mean time between two failed look-ups of an account. Each look-up takes this much out of the bucket."""
BURST_SECONDS = 10
"""Size of a bucket, in seconds. A full bucket allows BURST_SECONDS / LOOKUP_SECONDS failed look-ups at once."""
MOST_REMEMBERED = 10_000
ROUNDING_SECONDS = 1e-6
"""Tolerance for rounding errors in sums of fractions of a second."""


class FailedLookups:
    """A token bucket for each account, stored as the time when the bucket will be full again.

    Look-ups that run at the same time may overdraw a bucket, so the limit holds only on average.
    """

    __slots__ = ("_clock", "_full_at")

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._full_at = OrderedDict[UUID, float]()

    def check(self, account_id: UUID) -> None:
        """Raises EngineError: `engine.rate_limited`, if the account's bucket is empty."""
        wait_seconds = self._full_at.get(account_id, 0) + LOOKUP_SECONDS - self._clock() - BURST_SECONDS
        if wait_seconds > ROUNDING_SECONDS:
            raise EngineError(
                RATE_LIMITED,
                "Requests with too many revoked or expired keys of this account arrive; send a valid key again later.",
                retry_after_seconds=math.ceil(wait_seconds),
            )

    def count(self, account_id: UUID) -> None:
        now = self._clock()
        self._full_at[account_id] = max(self._full_at.pop(account_id, now), now) + LOOKUP_SECONDS
        if len(self._full_at) > MOST_REMEMBERED:
            self._full_at.popitem(last=False)
