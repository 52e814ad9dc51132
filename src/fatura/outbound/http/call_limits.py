"""Limits for the time of a call, and for the concurrent calls of each account and to each address (D-108, D-215)."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from uuid import UUID

from fatura.outbound.http.exchange import DEADLINE_SECONDS, MAX_WAIT_SECONDS, OutOfResourcesError

MAX_CALLS_OF_ACCOUNT = 256
MAX_CALLS_TO_ADDRESS = 512
"""Maximum number of concurrent calls to one address, not counting each account's first ALWAYS_ALLOWED calls."""
ALWAYS_ALLOWED = 2
"""Number of calls that each account may have open to an address, even if MAX_CALLS_TO_ADDRESS is reached.

The servers of many merchants can share an address, for example of a content delivery network. So the
calls of one merchant must not block all calls of the others.
"""


class CallTime:
    """Measures the time of one call, and limits it to DEADLINE_SECONDS. Waits for CallLimits do not count."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._waited = 0.0

    @property
    def milliseconds(self) -> int:
        return int((time.monotonic() - self._started - self._waited) * 1000)

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        """Raise TimeoutError in the block when the call's time is over.

        Call `take` only inside this block.
        """
        async with asyncio.timeout(DEADLINE_SECONDS) as self._timeout:
            yield

    async def take(self, place: AbstractAsyncContextManager[None], held: AsyncExitStack) -> None:
        """Wait until `place` is free, and take it. When `held` closes, it frees the place.

        Raises OutOfResourcesError if all waits of this call together last longer than MAX_WAIT_SECONDS.
        """
        began, at = time.monotonic(), self._timeout.when()
        self._timeout.reschedule(None)
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS - self._waited):
                await held.enter_async_context(place)
        except TimeoutError:
            raise OutOfResourcesError("too many calls are open") from None
        finally:
            waited = time.monotonic() - began
            self._waited += waited
            self._timeout.reschedule(None if at is None else at + waited)


class CallLimits:
    """Limits the open calls of one process: the calls of each account, and the calls to each address."""

    def __init__(self) -> None:
        self._accounts = _Places(MAX_CALLS_OF_ACCOUNT)
        self._addresses = _Places(MAX_CALLS_TO_ADDRESS)
        self._to_address = Counter[tuple[UUID, str]]()

    def of_account(self, account_id: UUID) -> AbstractAsyncContextManager[None]:
        return self._accounts.one(account_id)

    @asynccontextmanager
    async def to_addresses(self, account_id: UUID, addresses: Collection[str]) -> AsyncGenerator[None]:
        """Hold a place at each address during the block.

        A call needs no place at an address while the account has at most ALWAYS_ALLOWED calls to this address,
        including this call.
        """
        # all calls take places in the same order, so that they do not deadlock
        keys = [(account_id, address) for address in sorted(set(addresses))]
        self._to_address.update(keys)
        try:
            async with AsyncExitStack() as held:
                for key in keys:
                    if self._to_address[key] > ALWAYS_ALLOWED:
                        await held.enter_async_context(self._addresses.one(key[1]))
                yield
        finally:
            for key in keys:
                self._to_address[key] -= 1
                if not self._to_address[key]:
                    del self._to_address[key]


class _Places:
    """A semaphore for each key: at most `most` calls hold a place of one key at the same time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_key: dict[Hashable, asyncio.Semaphore] = {}
        self._users = Counter[Hashable]()

    @asynccontextmanager
    async def one(self, key: Hashable) -> AsyncGenerator[None]:
        places = self._by_key.setdefault(key, asyncio.Semaphore(self._most))
        self._users[key] += 1
        try:
            async with places:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._by_key[key]
