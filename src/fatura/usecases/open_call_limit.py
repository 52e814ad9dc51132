"""Limit the concurrent requests of one process, and the concurrent calls to third parties for these requests.

There is a limit for each account, and a limit for all accounts together.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.errors import RATE_LIMITED, UNAVAILABLE, EngineError

MAX_OPEN_CALLS = 200
"""Maximum concurrent calls to price endpoints of one account, so that its slow endpoints do not use up the sockets."""
MAX_OPEN_CALLS_IN_ALL = 500
"""Maximum concurrent calls to price endpoints of all accounts together. ALWAYS_ALLOWED permits further calls."""
MAX_GATEWAY_REQUESTS = 100
"""Maximum concurrent requests of one account that wait for gateways, so that other requests are served (D-175)."""
MAX_GATEWAY_REQUESTS_IN_ALL = 700
"""Maximum concurrent requests of all accounts that wait for gateways. ALWAYS_ALLOWED permits further requests.

If this limit and MAX_OPEN_CALLS_IN_ALL are both used up, 400 of MAX_OPEN_REQUESTS_IN_ALL are left. These 400 are for
requests that wait for no third party, and for requests that ALWAYS_ALLOWED permits (D-175).
"""
MAX_OPEN_REQUESTS = 400
"""Maximum concurrent requests of one account. Even if all of them wait for locks, other accounts are served (D-179)."""
MAX_OPEN_REQUESTS_IN_ALL = 1600
"""Maximum concurrent requests of all accounts together. ALWAYS_ALLOWED permits further requests."""
MAX_WEBHOOKS = 400
"""Maximum authentic webhooks of one account's gateways that wait to be stored (D-266)."""
MAX_WEBHOOKS_IN_ALL = 1200
"""Maximum authentic webhooks of all accounts that wait to be stored. ALWAYS_ALLOWED permits further webhooks."""
ALWAYS_ALLOWED = 2
"""Number of calls, and of requests, that each account may have open even if the limit for all accounts is reached."""
RETRY_AFTER_SECONDS = 10


class OpenCallLimit:
    """Counts the open calls of each account, and refuses calls above the limits (D-175).

    An account may have at most as many open calls as the limit for all accounts still allows. So a single account
    cannot use up the limit for all accounts, but about a dozen accounts with hanging endpoints can. Even then, every
    other account may have `always_allowed` calls open.
    """

    def __init__(self, most: int, *, most_in_all: int, what: str) -> None:
        """`most` is the limit of one account. `what` names the limited calls in the detail of errors."""
        self.most = most
        self.most_in_all = most_in_all
        self.always_allowed = ALWAYS_ALLOWED
        self._what = what
        self._open: Counter[UUID] = Counter()
        self._open_in_all = 0

    @contextmanager
    def places(self, account_id: UUID) -> Generator["Places"]:
        """Yield a counter of one request's open calls. When the block ends, these calls count as closed."""
        places = Places(self, account_id)
        try:
            yield places
        finally:
            self.count(account_id, -places.taken)

    @contextmanager
    def one(self, account_id: UUID) -> Generator[None]:
        """Count one call of the account as open until the block ends.

        Raises EngineError: `engine.rate_limited`, `engine.unavailable`.
        """
        with self.places(account_id) as places:
            places.take(1)
            yield

    def check(self, account_id: UUID, count: int) -> None:
        """Check that the account may make `count` more calls.

        Raises EngineError: `engine.rate_limited`, `engine.unavailable`.
        """
        wanted = self._open[account_id] + count
        if wanted > self.most:
            detail = f"At most {self.most} {self._what} may be open at once; wait until some have ended."
            raise EngineError(RATE_LIMITED, detail, retry_after_seconds=RETRY_AFTER_SECONDS)
        if wanted > max(self.most_in_all - self._open_in_all, self.always_allowed):
            detail = f"This server has too many open {self._what}; wait until some have ended."
            raise EngineError(UNAVAILABLE, detail, retry_after_seconds=RETRY_AFTER_SECONDS)

    def count(self, account_id: UUID, count: int) -> None:
        self._open_in_all += count
        self._open[account_id] += count
        if not self._open[account_id]:
            del self._open[account_id]


@dataclass(slots=True)
class Places:
    """The number of open calls of one request, counted within the limits of its account."""

    limit: OpenCallLimit
    account_id: UUID
    taken: int = 0

    def take(self, count: int) -> None:
        """Set the number of the request's open calls to `count`.

        The number is not added to the previous one, because a transaction that runs again calls `take` again.
        Raises EngineError: `engine.rate_limited`, `engine.unavailable`.
        """
        if count > self.taken:
            self.limit.check(self.account_id, count - self.taken)
        self.limit.count(self.account_id, count - self.taken)
        self.taken = count
