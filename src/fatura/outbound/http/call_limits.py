"""Limits for the time of a call, and for the concurrent calls of each account and to each address (D-108, D-215)."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol
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

    def deadline(self) -> asyncio.Timeout:
        """Raise TimeoutError in the `async with` block when the call's time is over. Call `take` only in this block."""
        self._timeout = asyncio.timeout(DEADLINE_SECONDS)
        return self._timeout

    async def take(self, place: "Place", held: ExitStack) -> None:
        """Wait until `place` is free, and take it. When `held` closes, it frees the place.

        Raises OutOfResourcesError if all waits of this call together last longer than MAX_WAIT_SECONDS.
        """
        if place.is_free():
            await place.take()  # does not wait, so it needs no time-out
        else:
            await self._wait(place)
        held.callback(place.free)

    async def _wait(self, place: "Place") -> None:
        began, at = time.monotonic(), self._timeout.when()
        self._timeout.reschedule(None)
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS - self._waited):
                await place.take()
        except TimeoutError:
            raise OutOfResourcesError("too many calls are open") from None
        finally:
            waited = time.monotonic() - began
            self._waited += waited
            self._timeout.reschedule(None if at is None else at + waited)


class Place(Protocol):
    """A place among a limited number of open calls."""

    def is_free(self) -> bool:
        """Return whether `take` would not wait."""
        ...

    async def take(self) -> None: ...

    def free(self) -> None: ...


class CallLimits:
    """Limits the open calls of one process: the calls of each account, and the calls to each address."""

    def __init__(self) -> None:
        self._accounts = _Places(MAX_CALLS_OF_ACCOUNT)
        self._addresses = _Places(MAX_CALLS_TO_ADDRESS)
        self._to_address = Counter[tuple[UUID, str]]()

    def of_account(self, account_id: UUID) -> Place:
        return _OneOf(self._accounts, account_id)

    def at_addresses(self, account_id: UUID, addresses: Collection[str]) -> Place:
        """Return a place at each address.

        A call needs no place at an address while the account has at most ALWAYS_ALLOWED calls to this address,
        including this call.
        """
        # all calls take places in the same order, so that they do not deadlock
        keys = [(account_id, address) for address in sorted(set(addresses))]
        return _AtAddresses(self._addresses, self._to_address, keys)


class _Places:
    """A semaphore for each key: at most `most` calls hold a place of one key at the same time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_key: dict[Hashable, asyncio.Semaphore] = {}
        self._users = Counter[Hashable]()

    def is_free(self, key: Hashable) -> bool:
        places = self._by_key.get(key)
        return places is None or not places.locked()

    async def take(self, key: Hashable) -> None:
        places = self._by_key.get(key)
        if places is None:
            places = self._by_key[key] = asyncio.Semaphore(self._most)
        self._users[key] += 1
        try:
            await places.acquire()
        except BaseException:
            self._leave(key)
            raise

    def free(self, key: Hashable) -> None:
        self._by_key[key].release()
        self._leave(key)

    def _leave(self, key: Hashable) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._by_key[key]


@dataclass(frozen=True, slots=True)
class _OneOf:
    places: _Places
    key: Hashable

    def is_free(self) -> bool:
        return self.places.is_free(self.key)

    async def take(self) -> None:
        await self.places.take(self.key)

    def free(self) -> None:
        self.places.free(self.key)


@dataclass(slots=True)
class _AtAddresses:
    """`open_calls` counts each account's calls to each address; `keys` are those of this call."""

    places: _Places
    open_calls: Counter[tuple[UUID, str]]
    keys: Sequence[tuple[UUID, str]]
    held: list[str] = field(default_factory=list[str])

    def is_free(self) -> bool:
        return all(self.open_calls[key] < ALWAYS_ALLOWED or self.places.is_free(key[1]) for key in self.keys)

    async def take(self) -> None:
        self.open_calls.update(self.keys)
        try:
            for key in self.keys:
                if self.open_calls[key] > ALWAYS_ALLOWED:
                    await self.places.take(key[1])
                    self.held.append(key[1])
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        for address in self.held:
            self.places.free(address)
        for key in self.keys:
            self.open_calls[key] -= 1
            if not self.open_calls[key]:
                del self.open_calls[key]
