"""Answer concurrent callers with the result of one call."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Runs at most one call at a time. Callers that come while it runs get its result.

    The result is kept for `keep_seconds`. An exception is raised for every caller that waits, and is not kept.
    """

    __slots__ = ("_clock", "_kept", "_kept_until", "_running", "keep_seconds")

    def __init__(self, *, keep_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.keep_seconds = keep_seconds
        self._clock = clock
        self._kept: Any = None
        self._kept_until = float("-inf")
        self._running: asyncio.Task[T] | None = None

    async def get(self, function: Callable[[], Awaitable[T]]) -> T:
        """Return the kept result, or wait for the running call, or call `function`."""
        if self._running is None:
            if self._clock() < self._kept_until:
                return self._kept
            self._running = asyncio.create_task(self._call(function))
        return await asyncio.shield(
            self._running
        )  # a caller that is canceled must not cancel the others' call

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        try:
            self._kept = await function()
            self._kept_until = self._clock() + self.keep_seconds
            return self._kept
        finally:
            self._running = None
