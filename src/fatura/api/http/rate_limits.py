"""Limits of requests, of gateways' webhooks and of failed authentications (D-48, D-191, D-192).

Each process counts its own requests.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from fatura.domain.errors import RATE_LIMITED, EngineError
from fatura.settings import Settings

BURST_PERIODS = 2
"""Size of a burst: after a pause, a sender may send at once what its limit allows in this number of periods (D-48)."""
MOST_REMEMBERED = 10_000
"""Maximum number of buckets, and of accepted credentials. The one that was used longest ago is forgotten first."""
UNSEEN_PER_SECOND = 5
"""Allowance per second for new credentials from addresses whose bucket is empty. All these addresses share it."""


class RateLimiter:
    """A token bucket for each key, stored as the time when the bucket will be full again."""

    __slots__ = ("_burst_seconds", "_clock", "_full_at", "_period_seconds", "_refusal", "_token_seconds")

    def __init__(
        self,
        limit: int,
        *,
        refusal: str,
        period_seconds: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allow `limit` requests in each period. A limit of 0 means no limit. `clock` returns seconds."""
        self._token_seconds = period_seconds / limit if limit else 0.0
        self._period_seconds = period_seconds
        self._burst_seconds = BURST_PERIODS * period_seconds
        self._refusal = refusal
        self._clock = clock
        self._full_at = OrderedDict[Hashable, float]()

    def take(self, key: Hashable) -> None:
        """Count one request of a key, or refuse it.

        Raises EngineError: `engine.rate_limited` with `retry_after_seconds`.
        """
        self.check(key)
        self.count(key)

    def check(self, key: Hashable) -> None:
        """Refuse a request if the key's bucket is empty. The request is not counted. Raises like `take`."""
        if key not in self._full_at:
            return
        self._full_at.move_to_end(key)
        now = self._clock()
        wait_seconds = max(self._full_at[key], now) + self._token_seconds - now - self._burst_seconds
        if wait_seconds > _ROUNDING_SECONDS:
            raise EngineError(RATE_LIMITED, self._refusal, retry_after_seconds=math.ceil(wait_seconds))

    def count(self, key: Hashable) -> None:
        """Take a token from the key's bucket.

        If several requests are checked before the first of them is counted, the bucket may owe tokens. It owes at most
        the tokens of one period, so that no key is refused for long.
        """
        if not self._token_seconds:
            return
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + self._token_seconds
        self._full_at[key] = min(full_at, now + self._burst_seconds + self._period_seconds)
        self._full_at.move_to_end(key)
        if len(self._full_at) > MOST_REMEMBERED:
            self._full_at.popitem(last=False)

    def give_back(self, key: Hashable) -> None:
        """Put a token back into the key's bucket."""
        if key not in self._full_at:
            return
        self._full_at[key] -= self._token_seconds
        if self._full_at[key] <= self._clock():
            del self._full_at[key]


_ROUNDING_SECONDS = 1e-6
"""Tolerance for rounding errors in sums of fractions of a second."""


class FailureLimiter:
    """Limits failed authentications from each address (D-191).

    Several senders may share one address. Credentials that this process has accepted therefore have buckets of their
    own. All other credentials from an address share one bucket. If that bucket is empty, a small allowance applies,
    which all addresses with an empty bucket share. So the failures of one sender do not block the others permanently.
    """

    __slots__ = ("_accepted", "_allowance", "_limiter")

    def __init__(self, limit: int, *, refusal: str) -> None:
        """Allow `limit` failures per minute; 0 means no limit."""
        self._limiter = RateLimiter(limit, refusal=refusal, period_seconds=_MINUTE)
        self._allowance = RateLimiter(UNSEEN_PER_SECOND, refusal=refusal)
        self._accepted = OrderedDict[Hashable, None]()

    @contextmanager
    def attempt(self, address: str, credentials: Hashable) -> Generator[None]:
        """Run one authentication in this context. If the context raises EngineError, the authentication has failed.

        Raises EngineError: `engine.rate_limited`, before the context begins.
        """
        own = (address, credentials)
        # accepted credentials take no token in advance, because their concurrent requests may outnumber the tokens
        is_known = credentials in self._accepted
        if is_known:
            self._limiter.check(own)
            give_back = None
        else:
            give_back = self._take(address)
        try:
            yield
        except EngineError:
            if is_known:
                self._limiter.count(own)
            raise
        except Exception:
            if give_back:
                give_back()
            raise
        if give_back:
            give_back()
        self._accept(credentials)

    def _take(self, address: str) -> Callable[[], None]:
        """Take a token before the authentication, so that concurrent attempts do not exceed the limit.

        Return a function that gives the token back. Raises like `attempt`.
        """
        try:
            self._limiter.take(address)
        except EngineError:
            self._allowance.take(_EVERYONE)
            return partial(self._allowance.give_back, _EVERYONE)
        return partial(self._limiter.give_back, address)

    def _accept(self, credentials: Hashable) -> None:
        self._accepted[credentials] = None
        self._accepted.move_to_end(credentials)
        if len(self._accepted) > MOST_REMEMBERED:
            self._accepted.popitem(last=False)


_MINUTE = 60
_EVERYONE = "everyone"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one process."""

    accounts: RateLimiter
    webhooks: RateLimiter
    wrong_keys: FailureLimiter
    refused_webhooks: FailureLimiter

    @classmethod
    def of(cls, settings: Settings) -> Self:
        requests, webhooks = settings.rate_limit_per_second, settings.webhook_rate_limit_per_minute
        failures = settings.failure_rate_limit_per_minute
        return cls(
            RateLimiter(
                requests, refusal=f"This account may make {requests} requests per second; slow down."
            ),
            RateLimiter(
                webhooks,
                refusal=f"The gateway of this connection may send {webhooks} webhooks per minute; send it again later.",
                period_seconds=_MINUTE,
            ),
            FailureLimiter(
                failures, refusal="Too many wrong API keys came from this address; check the key."
            ),
            FailureLimiter(
                failures,
                refusal="Too many webhooks from this address were refused; check their URL, and the secret that signs "
                "them.",
            ),
        )
