"""Limit the concurrent calls that retry-pricing and pricing-test make for one account in one process."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from uuid import UUID

from fatura.domain.errors import RATE_LIMITED, EngineError

MAX_OPEN_CALLS = 200
"""Maximum concurrent calls of one account, so that slow endpoints do not use up the process's sockets."""
RETRY_AFTER_SECONDS = 10


class OpenCallLimit:
    def __init__(self) -> None:
        self._open: Counter[UUID] = Counter()

    def check(self, account_id: UUID, count: int) -> None:
        """Check that the account may make `count` more calls. Raises EngineError: `engine.rate_limited`."""
        if self._open[account_id] + count > MAX_OPEN_CALLS:
            raise EngineError(
                RATE_LIMITED,
                f"At most {MAX_OPEN_CALLS} calls to price endpoints may be open at once; wait until some have ended.",
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
