"""Limits how many connections of the pool one account uses at a time, and how many all accounts use for writes.

Without these limits, requests that wait for one locked row would use all connections of the pool. The requests of all
other accounts would then wait for a connection.
"""

import asyncio
from collections import Counter
from uuid import UUID


class ConnectionShares:
    """The shares of a pool. A quarter of the pool is reserved for reads, which do not wait long for locks.

    An account uses at most half of the pool for writes, and at most half for reads. So the reads of an account never
    wait for its writes, and the writes of one account leave connections to the other accounts.
    """

    def __init__(self, max_connections: int) -> None:
        self._an_account = max(max_connections // 2, 1)
        self._all_writes = asyncio.Semaphore(max_connections - max(max_connections // 4, 1))
        self._by_account: dict[tuple[UUID, bool], asyncio.Semaphore] = {}
        self._users: Counter[tuple[UUID, bool]] = Counter()

    async def take(self, account_id: UUID, *, reads: bool) -> None:
        """Wait until the account may use one more connection. Waiting calls are served in order."""
        key = (account_id, reads)
        share = self._by_account.setdefault(key, asyncio.Semaphore(self._an_account))
        self._users[key] += 1
        try:
            await share.acquire()
        except BaseException:
            self._leave(key)
            raise
        if reads:
            return
        try:
            await self._all_writes.acquire()
        except BaseException:
            share.release()
            self._leave(key)
            raise

    def give_back(self, account_id: UUID, *, reads: bool) -> None:
        key = (account_id, reads)
        if not reads:
            self._all_writes.release()
        self._by_account[key].release()
        self._leave(key)

    def _leave(self, key: tuple[UUID, bool]) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._by_account[key]
