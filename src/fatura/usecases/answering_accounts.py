"""Limit the concurrent gateway calls of accounts for which no gateway has answered lately (D-55)."""

import time
from uuid import UUID

REMEMBER_SECONDS = 60
MAX_REMEMBERED = 10_000
FIRST_CALLS = 4
"""Maximum number of concurrent calls for an account for which no gateway has answered lately.

With this limit, a worker has at most 4,000 open calls if the gateways of 1,000 accounts hang at the same time.
"""


class AnsweringAccounts:
    """The accounts for which a gateway has answered a call of this process in the last REMEMBER_SECONDS."""

    def __init__(self) -> None:
        self._until: dict[UUID, float] = {}

    def note(self, account_id: UUID) -> None:
        """Remember that a gateway of the account has answered."""
        if len(self._until) >= MAX_REMEMBERED:
            self._until.clear()
        self._until[account_id] = time.monotonic() + REMEMBER_SECONDS

    def limit(self, account_id: UUID, limit: int) -> int:
        """Return the account's maximum number of concurrent calls.

        If a gateway of the account has answered lately, this is `limit`; otherwise, it is at most FIRST_CALLS.
        """
        return limit if self._until.get(account_id, 0.0) > time.monotonic() else min(limit, FIRST_CALLS)
