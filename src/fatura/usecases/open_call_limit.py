"""Limit the concurrent calls to third parties that requests of one account wait for in one process."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from uuid import UUID

from fatura.domain.errors import RATE_LIMITED, EngineError

MAX_OPEN_CALLS = 200
"""Maximum concurrent calls of one account, so that slow endpoints do not use up the process's sockets."""
MAX_GATEWAY_REQUESTS = 100
"""Maximum concurrent requests of one account that wait for gateways, so that others are still served (D-175)."""
RETRY_AFTER_SECONDS = 10


class OpenCallLimit:
    def __init__(self, most: int, what: str) -> None:
        """`most` is the limit. `what` names in the error's detail what is limited."""
        self.most = most
        self._what = what
        self._open: Counter[UUID] = Counter()

    def check(self, account_id: UUID, count: int) -> None:
        """Check that the account may make `count` more calls. Raises EngineError: `engine.rate_limited`."""
        if self._open[account_id] + count > self.most:
            raise EngineError(
                RATE_LIMITED,
                f"At most {self.most} {self._what} may be open at once; wait until some have ended.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )

    @contextmanager
    def opened(self, account_id: UUID, count: int) -> Generator[None]:
        """Count `count` calls of the account as open until the block ends."""
        self._open[account_id] += count
        try:
            yield
        finally:
            self._open[account_id] -= count
            if not self._open[account_id]:
                del self._open[account_id]

    @contextmanager
    def one(self, account_id: UUID) -> Generator[None]:
        """Count one call of the account as open until the block ends. Raises EngineError: `engine.rate_limited`."""
        self.check(account_id, 1)
        with self.opened(account_id, 1):
            yield
