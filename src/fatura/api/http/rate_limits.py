"""Limits of requests, of authentic and refused webhooks, and of views of pay pages (D-48, D-191, D-192, D-258).

Each process counts its own requests.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Self, TypeVar

from fatura.domain.errors import RATE_LIMITED, EngineError
from fatura.domain.pay_links import PayLink
from fatura.settings import Settings

BURST_PERIODS = 2
"""After a pause, a sender may send as many requests at once as its limit allows in this number of periods (D-48)."""
MOST_REMEMBERED = 10_000
"""Maximum number of buckets. The bucket that was used longest ago is forgotten first."""
PAGES_OF_ACCOUNT = 10
"""The pages of an account may be opened this many times as often together as each of them (D-258)."""

T = TypeVar("T")


class RateLimiter:
    """A token bucket for each key, stored as the time when the bucket will be full again."""

    __slots__ = ("_burst_seconds", "_clock", "_full_at", "_refusal", "_token_seconds")

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
        self._burst_seconds = BURST_PERIODS * period_seconds
        self._refusal = refusal
        self._clock = clock
        self._full_at = OrderedDict[Hashable, float]()

    def take(self, key: Hashable) -> None:
        """Count a request of a key, or refuse the request if the key has used up its limit.

        Raises EngineError: `engine.rate_limited` with `retry_after_seconds`.
        """
        if not self._token_seconds:
            return
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now)
        wait_seconds = full_at + self._token_seconds - now - self._burst_seconds
        if wait_seconds > _ROUNDING_SECONDS:
            self._full_at.move_to_end(key)
            raise EngineError(RATE_LIMITED, self._refusal, retry_after_seconds=math.ceil(wait_seconds))
        self._full_at[key] = full_at + self._token_seconds
        self._full_at.move_to_end(key)
        if len(self._full_at) > MOST_REMEMBERED:
            self._full_at.popitem(last=False)


_ROUNDING_SECONDS = 1e-6
"""Tolerance for rounding errors in sums of fractions of a second."""


_MINUTE = 60


class PayPageViews:
    """Limits the views of each link, and those of all links of an account (D-258).

    A replaced link has a bucket of its own, so a person with the old link cannot use up the views of the new link.
    """

    __slots__ = ("_accounts", "_closed", "_links")

    def __init__(self, limit: int) -> None:
        """Allow `limit` views of each link per minute. A limit of 0 means no limit."""
        refusal = "This page was opened too often; open it again in a minute."
        self._links = RateLimiter(limit, refusal=refusal, period_seconds=_MINUTE)
        self._accounts = RateLimiter(limit * PAGES_OF_ACCOUNT, refusal=refusal, period_seconds=_MINUTE)
        self._closed = OrderedDict[PayLink, None]()

    async def count(self, link: PayLink, find: Callable[[], Awaitable[T | None]]) -> T | None:
        """Count a view, and return the result of `find`, which is None if the link opens nothing.

        Above the limit, a link whose last view found nothing gets None instead of an error, so it still looks unknown.
        Raises EngineError: `engine.rate_limited`.
        """
        try:
            self._links.take(link)
            self._accounts.take(link.account_id)
        except EngineError:
            if link in self._closed:
                return None
            raise
        found = await find()
        self._closed.pop(link, None)
        if found is None:
            self._closed[link] = None
            if len(self._closed) > MOST_REMEMBERED:
                self._closed.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one process."""

    accounts: RateLimiter
    webhooks: RateLimiter
    refused_webhooks: RateLimiter
    pay_pages: PayPageViews

    @classmethod
    def of(cls, settings: Settings) -> Self:
        requests, webhooks = settings.rate_limit_per_second, settings.webhook_rate_limit_per_minute
        refused = settings.refused_webhook_rate_limit_per_minute
        return cls(
            RateLimiter(
                requests, refusal=f"This account may make {requests} requests per second; slow down."
            ),
            RateLimiter(
                webhooks,
                refusal=f"The gateway of this connection may send {webhooks} webhooks per minute; send it again later.",
                period_seconds=_MINUTE,
            ),
            RateLimiter(
                refused,
                refusal="Too many webhooks from this address were refused; check their URL, and the secret that signs "
                "them.",
                period_seconds=_MINUTE,
            ),
            PayPageViews(settings.pay_page_rate_limit_per_minute),
        )
