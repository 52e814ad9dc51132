"""Crash points: every statement and every outside call of a process, counted, named, and killed at with SIGKILL."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar, cast

import asyncpg

T = TypeVar("T")

_WIRING = ("/fatura/store/db.py", "/fatura/usecases/transaction.py", "/fatura/open_transaction.py")
"""Where every statement passes through; the place of a point is further out."""


class Moment(StrEnum):
    """When in an input or output the process dies: nothing sent, sent and unanswered, answered."""

    BEFORE = "before"
    SENT = "sent"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class KillAt:
    """An input or output, by its name, and when in it.

    Its name counts those of its place and kind alone: what runs beside it may come in another order.
    """

    name: str
    moment: Moment


@dataclass(slots=True)
class Points:
    """Counts what a process asks of the database and the world outside while `counting`, and kills it at one point.

    `folder` gets two files: `died`, the name of the point, written as the last deed; and `kill`, by which the world
    outside learns whom to kill once it has taken the call.
    """

    folder: Path
    kill_at: KillAt | None = None
    names: list[str] = field(default_factory=list[str])
    times: Counter[str] = field(default_factory=Counter[str])
    is_counting: bool = False

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count what is asked within the block."""
        self.is_counting = True
        yield
        self.is_counting = False

    async def perform(self, kind: str, send: Callable[[], Awaitable[T]], die_sent: "DieSent") -> T:
        """Count one input or output, die at it if it is the one, else make it."""
        if not self.is_counting:
            return await send()
        label = f"{_place()} / {kind}"
        self.times[label] += 1
        self.names.append(f"{label} #{self.times[label]}")
        moment = None
        if self.kill_at is not None and self.kill_at.name == self.names[-1]:
            moment = self.kill_at.moment
            (self.folder / "died").write_text(f"{self.names[-1]} / {moment}")
        if moment is Moment.BEFORE:
            kill_self()
        if moment is Moment.SENT:
            await die_sent()
        try:
            return await send()
        finally:
            if moment is Moment.AFTER:
                kill_self()


DieSent = Callable[[], Coroutine[Any, Any, object]]


def kill_self() -> NoReturn:
    """Kill this process with -9."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _place() -> str:
    """Return the engine's own function that asks, as `module.function`."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if "/fatura/" in file and not file.endswith(_WIRING):
            return f"{Path(file).stem}.{frame.f_code.co_qualname.rpartition('.')[2]}"
        frame = frame.f_back
    return "pool"


def connection_class(points: Points) -> "type[asyncpg.Connection[Any]]":
    """Return a class of connections whose every statement passes by."""

    class CountedConnection(asyncpg.Connection):
        async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:  # noqa: ASYNC109 - asyncpg's signature
            make = super().execute
            return await self._passing(query, lambda: make(query, *args, timeout=timeout), prepared=args)

        async def fetch(self, query: str, *args: object, **options: Any) -> Any:
            make = super().fetch
            return await self._passing(query, lambda: make(query, *args, **options))

        async def fetchval(self, query: str, *args: object, **options: Any) -> Any:
            make = super().fetchval
            return await self._passing(query, lambda: make(query, *args, **options))

        async def fetchrow(self, query: str, *args: object, **options: Any) -> Any:
            make = super().fetchrow
            return await self._passing(query, lambda: make(query, *args, **options))

        async def _passing(
            self, query: str, make: Callable[[], Coroutine[Any, Any, T]], *, prepared: object = True
        ) -> T:
            async def die_sent() -> None:
                if prepared:  # what is left to send is then the statement's run alone
                    await cast("Any", self)._get_statement(query, None)
                make().send(None)  # runs to where it waits for the answer
                kill_self()

            return await points.perform(query.split(maxsplit=1)[0].rstrip(";"), make, die_sent)

    return CountedConnection


class CountedGateway:
    """A gateway whose every call passes by."""

    def __init__(self, gateway: Any, points: Points) -> None:
        self._gateway = gateway
        self._points = points

    def __getattr__(self, name: str) -> Any:
        """Return what the gateway has; its calls are counted."""
        found = getattr(self._gateway, name)
        if name in {"capabilities", "read_webhook", "provider", "check_credentials"}:
            return found  # asks nobody

        async def call(*values: Any) -> Any:
            return await outside_call(self._points, name, lambda: found(*values))

        return call


class CountedMerchants:
    """A client of merchants whose every call passes by."""

    def __init__(self, client: Any, points: Points) -> None:
        self._client = client
        self._points = points

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    def session(self) -> Any:
        """Open a line whose calls are counted."""
        return _CountedSession(self._client.session(), self._points)


class _CountedSession:
    def __init__(self, opening: Any, points: Points) -> None:
        self._opening = opening
        self._points = points
        self._line: Any = None

    async def __aenter__(self) -> Self:
        self._line = await self._opening.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._opening.__aexit__(*failure)

    async def post(self, url: str, **options: Any) -> Any:
        return await outside_call(self._points, "POST", lambda: self._line.post(url, **options))


async def outside_call(points: Points, kind: str, send: Callable[[], Awaitable[T]]) -> T:
    """Make a call to the world outside; it kills the caller when it has taken the one that is to be cut short."""

    async def die_sent() -> None:
        delivered = points.folder / "killing"
        delivered.write_text(str(os.getpid()))
        delivered.rename(points.folder / "kill")  # whole at once: another call may be answered just now
        await send()
        raise AssertionError("the world outside kills its caller")

    return await points.perform(kind, send, die_sent)
