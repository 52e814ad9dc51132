"""Limit the concurrent calls to third parties that API requests wait for in one process, by account and in all."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.errors import RATE_LIMITED, UNAVAILABLE, EngineError

MAX_OPEN_CALLS = 200
"""Maximum concurrent calls to price endpoints of one account, so that its slow endpoints do not use up the sockets."""
MAX_OPEN_CALLS_IN_ALL = 500
"""Maximum concurrent calls to price endpoints that requests of all accounts wait for."""
MAX_GATEWAY_REQUESTS = 100
"""Maximum concurrent requests of one account that wait for gateways, so that others are still served (D-175)."""
MAX_GATEWAY_REQUESTS_IN_ALL = 700
"""Maximum concurrent requests of all accounts that wait for gateways.

Together with MAX_OPEN_CALLS_IN_ALL, this is less than the number of requests that a process serves, so that it still
answers all other requests.
"""
RETRY_AFTER_SECONDS = 10


class OpenCallLimit:
    """Counts open calls. An account may hold at most as many as are left for all others (D-175).

    However many accounts have hanging endpoints, another account can therefore still make calls.
    """

    def __init__(self, most: int, *, most_in_all: int, what: str) -> None:
        """`most` is the limit of one account. `what` names in the error's detail what is limited."""
        self.most = most
        self.most_in_all = most_in_all
        self._what = what
        self._open: Counter[UUID] = Counter()

    @contextmanager
    def places(self, account_id: UUID) -> Generator["Places"]:
        """Yield places of the account; the block's end frees them."""
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
        if wanted > self.most_in_all - self._open.total():
            detail = f"This server has too many open {self._what}; wait until some have ended."
            raise EngineError(UNAVAILABLE, detail, retry_after_seconds=RETRY_AFTER_SECONDS)

    def count(self, account_id: UUID, count: int) -> None:
        self._open[account_id] += count
        if not self._open[account_id]:
            del self._open[account_id]


@dataclass(slots=True)
class Places:
    """The calls that one request of an account holds open."""

    limit: OpenCallLimit
    account_id: UUID
    taken: int = 0

    def take(self, count: int) -> None:
        """Count `count` calls as open, in place of those that were taken before, so that a transaction may be repeated.

        Raises EngineError: `engine.rate_limited`, `engine.unavailable`.
        """
        self.limit.check(self.account_id, count - self.taken)
        self.limit.count(self.account_id, count - self.taken)
        self.taken = count
