"""How many calls to merchants one account may keep open by its own requests, in one process."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from uuid import UUID

from fatura.domain.errors import RATE_LIMITED, EngineError

MOST_OPEN = 200
"""Calls of one account by retry-pricing and pricing-test; a slow endpoint must not use up the process's sockets."""
WAIT_SECONDS = 10


class CallsByHand:
    """Counts the open calls of each account."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._open: Counter[UUID] = Counter()

    def check(self, account_id: UUID, count: int) -> None:
        """Refuse `count` calls more where that would be too many. Raises EngineError: `engine.rate_limited`."""
        if self._open[account_id] + count > MOST_OPEN:
            raise EngineError(
                RATE_LIMITED,
                f"At most {MOST_OPEN} calls to price endpoints may be open at once; wait until some have ended.",
                retry_after_seconds=WAIT_SECONDS,
            )

    @contextmanager
    def opened(self, account_id: UUID, count: int) -> Generator[None]:
        """Count calls while they are open."""
        self._open[account_id] += count
        try:
            yield
        finally:
            self._open[account_id] -= count
            if not self._open[account_id]:
                del self._open[account_id]
