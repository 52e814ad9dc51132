"""Crash points: statements and external calls at which a process can be killed.

A point's name consists of the engine's function, the kind of I/O and a number: `module.function / UPDATE #2` is the
second UPDATE of this function.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import asyncpg

from fatura.domain.account import Account
from tests.faults import connections
from tests.faults.connections import Send

T = TypeVar("T")

_WIRING = ("/fatura/store/db.py", "/fatura/usecases/transaction.py", "/fatura/open_transaction.py")
"""Modules through which every statement passes. A point is named after the nearest caller outside these modules."""


class Moment(StrEnum):
    """When the process is killed: before sending a statement or call, after sending it, or after the response."""

    BEFORE = "before"
    SENT = "sent"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class KillAt:
    """A point, and the moment of the kill at this point.

    The number in a point's name counts only I/O of the same function and kind. A count of all I/O would differ between
    trials, because concurrent I/O has no fixed order.
    """

    name: str
    moment: Moment


@dataclass(slots=True)
class Points:
    """Counts the I/O inside `counting`, and kills the process at the point `kill_at`.

    At an external call, with the moment SENT, the called service kills the process. The service reads the id of the
    process from the file `kill` in `folder`.
    """

    folder: Path
    kill_at: KillAt | None = None
    names: list[str] = field(default_factory=list[str])
    times: Counter[str] = field(default_factory=Counter[str])
    is_counting: bool = False

    @contextmanager
    def counting(self) -> Generator[None]:
        self.is_counting = True
        yield
        self.is_counting = False

    async def perform(self, kind: str, send: Callable[[], Awaitable[T]], send_and_die: "SendAndDie") -> T:
        """Count one I/O. Then perform it, or kill the process before, during or after it."""
        if not self.is_counting:
            return await send()
        label = f"{_place()} / {kind}"
        self.times[label] += 1
        self.names.append(f"{label} #{self.times[label]}")
        moment = None
        if self.kill_at is not None and self.kill_at.name == self.names[-1]:
            moment = self.kill_at.moment
        if moment is Moment.BEFORE:
            kill_self()
        if moment is Moment.SENT:
            await send_and_die()
        try:
            return await send()
        finally:
            if moment is Moment.AFTER:
                kill_self()


SendAndDie = Callable[[], Coroutine[Any, Any, object]]


def kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _place() -> str:
    """Return the name of the engine's function that performs the I/O, as `module.function`."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if "/fatura/" in file and not file.endswith(_WIRING):
            return f"{Path(file).stem}.{frame.f_code.co_qualname.rpartition('.')[2]}"
        frame = frame.f_back
    return "pool"


def connection_class(points: Points) -> "type[asyncpg.Connection[Any]]":
    async def around(connection: Any, sql: str, send: Send, *, is_prepared: bool) -> Any:
        async def send_and_die() -> None:
            if is_prepared:  # prepare the statement now, so that the next message to the server executes it
                await connection._get_statement(sql, None)
            send().send(None)  # this runs asyncpg's coroutine until it waits for the response
            kill_self()

        return await points.perform(sql.split(maxsplit=1)[0].rstrip(";"), send, send_and_die)

    return connections.connection_class(around)


class CountedGateway:
    def __init__(self, gateway: Any, points: Points) -> None:
        self._gateway = gateway
        self._points = points

    async def charges_since(self, since: datetime) -> AsyncIterator[Any]:
        """Read all charges in one call to the gateway, so that the list is one crash point."""

        async def read() -> list[Any]:
            return [charge async for charge in self._gateway.charges_since(since)]

        for charge in await outside_call(self._points, "charges_since", read):
            yield charge

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._gateway, name)
        if name in {"capabilities", "read_webhook", "provider", "check_credentials"}:
            return found  # no external call, so no crash point

        async def call(*values: Any) -> Any:
            return await outside_call(self._points, name, lambda: found(*values))

        return call


class CountedMerchants:
    def __init__(self, client: Any, points: Points) -> None:
        self._client = client
        self._points = points

    async def close(self) -> None:
        await self._client.close()

    def session(self, account: Account) -> Any:
        return _CountedSession(self._client.session(account), self._points)


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
    async def send_and_die() -> None:
        written = points.folder / "killing"
        written.write_text(str(os.getpid()))
        written.rename(points.folder / "kill")  # atomic, so that concurrent calls never read half a file
        await send()
        raise AssertionError("the external service kills its caller")

    return await points.perform(kind, send, send_and_die)
