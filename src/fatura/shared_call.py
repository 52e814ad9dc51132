"""Answer concurrent callers with the result of one call."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Runs at most one call at a time. Callers that arrive while a call runs get its result.

    The result is kept for `keep_seconds`. If the call fails, all waiting callers get the exception, which is not kept.
    """

    __slots__ = ("_clock", "_kept", "_kept_until", "_running", "keep_seconds")

    def __init__(self, *, keep_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.keep_seconds = keep_seconds
        self._clock = clock
        self._kept: Any = None
        self._kept_until = float("-inf")
        self._running: asyncio.Task[T] | None = None

    async def get(self, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the running call. If no call runs, return the kept result, or else call `function`."""
        if self._running is None:
            if self._clock() < self._kept_until:
                return self._kept
            self._running = asyncio.create_task(self._call(function))
        # a canceled caller must not cancel the call for which others wait
        return await asyncio.shield(self._running)

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        try:
            self._kept = await function()
            self._kept_until = self._clock() + self.keep_seconds
            return self._kept
        finally:
            self._running = None


class SharedLookups:
    """Runs at most one look-up of each group at a time. Callers with the same key share a look-up that has not begun.

    A caller gets the result of a look-up that began after the caller asked, so the result is never outdated.
    """

    __slots__ = ("_turns", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}
        self._turns = WeakValueDictionary[Hashable, asyncio.Lock]()

    async def get(self, function: Callable[[], Awaitable[T]], *, group: Hashable, key: Hashable) -> T:
        """Call `function` as soon as no other look-up of the group runs, and return its result.

        If another caller's look-up with the same `key` has not begun yet, return the result of that look-up instead.
        """
        if key not in self._waiting:
            turn = self._turns.setdefault(group, asyncio.Lock())
            self._waiting[key] = asyncio.create_task(self._call(function, turn, key))
        return await asyncio.shield(self._waiting[key])

    async def _call(self, function: Callable[[], Awaitable[T]], turn: asyncio.Lock, key: Hashable) -> T:
        async with turn:
            del self._waiting[key]
            return await function()


class SharedBatches:
    """Runs at most one call of each group at a time. A call gets the items of all callers that wait for it."""

    __slots__ = ("_calls", "_waiting")

    def __init__(self) -> None:
        self._calls = SharedLookups()
        self._waiting: dict[Hashable, list[Any]] = {}

    async def run(
        self,
        function: Callable[[Sequence[T]], Awaitable[Sequence[BaseException | None]]],
        item: T,
        *,
        group: Hashable,
    ) -> None:
        """Wait until a call of `function` with this item, and those of other callers, has ended.

        `function` returns an error or None for each item, and each caller gets the error of its own item. If `function`
        raises, all callers of the batch get the exception.
        """

        def call() -> Awaitable[Sequence[BaseException | None]]:
            # this runs in the same step in which `SharedLookups` stops adding callers to this call
            return function(self._waiting.pop(group))

        waiting = self._waiting.setdefault(group, [])
        place = len(waiting)
        waiting.append(item)
        errors = await self._calls.get(call, group=group, key=group)
        if (error := errors[place]) is not None:
            raise error
