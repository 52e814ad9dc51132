"""Begin and end transactions on the connections of a pool.

These are classes with `__aenter__` and `__aexit__`. With nested generators instead, a GET takes a tenth more CPU time.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from fatura.failure_text import OwnTextError
from fatura.store.connection_shares import ConnectionShares
from fatura.store.pool import Opening
from fatura.store.row_details import hide_row_details
from fatura.store.transaction_end import (
    UNAVAILABLE_ERRORS,
    DatabaseUnavailableError,
    close,
    commit,
    roll_back,
    unavailable,
)
from fatura.transaction_mark import TransactionMark

ACQUIRE_TIMEOUT_SECONDS = 10
"""Maximum wait for a free connection, and maximum wait for the answer to BEGIN."""

T = TypeVar("T")


class LockTimeoutError(OwnTextError):
    """Another transaction held a lock for longer than LOCK_TIMEOUT_MS."""


class NoFreeConnectionError(DatabaseUnavailableError):
    """All connections that the account may use were in use for ACQUIRE_TIMEOUT_SECONDS."""


class DeadlockError(OwnTextError):
    """The database aborted this transaction because of a deadlock or a serialization failure. A repeat may succeed."""


def translated(error: BaseException) -> Exception | None:
    """Return the error to raise instead of an error of the driver, or None to raise `error` itself.

    Remove the data of rows from `error`.
    """
    if isinstance(error, asyncpg.PostgresError):
        hide_row_details(error)
    if isinstance(error, asyncpg.LockNotAvailableError):
        return LockTimeoutError(str(error))
    if isinstance(error, (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)):
        return DeadlockError(str(error))
    if isinstance(error, UNAVAILABLE_ERRORS):
        return unavailable(error)
    return None


@dataclass(slots=True, eq=False)
class Loan(AbstractAsyncContextManager[Any]):
    """Lends a connection of the pool while its block runs.

    `share` is an account's id, and whether the connection counts towards the account's share for reads instead of its
    share for writes. `limit` limits the loans of one kind of work.

    Raises DatabaseUnavailableError, NoFreeConnectionError.
    """

    pool: Any
    shares: ConnectionShares
    share: tuple[UUID, bool] | None = None
    limit: asyncio.Semaphore | None = None
    _connection: Any = field(init=False, default=None)

    async def __aenter__(self) -> Any:
        if self.limit is not None:
            await self.limit.acquire()
        has_share = False
        try:
            # `acquire(timeout=...)` is not used, because it would start a task for each transaction.
            async with asyncio.timeout(ACQUIRE_TIMEOUT_SECONDS):
                if self.share is not None:
                    await self.shares.take(self.share[0], reads=self.share[1])
                    has_share = True
                self._connection = await self.pool.acquire()
        except BaseException as error:
            self._give_back(has_share=has_share)
            if isinstance(error, TimeoutError) and self.share is not None and not has_share:
                message = f"the account's share of the connections was in use for {ACQUIRE_TIMEOUT_SECONDS} s"
                raise NoFreeConnectionError(message) from error
            if isinstance(error, (*UNAVAILABLE_ERRORS, asyncpg.PostgresError)):
                raise unavailable(error) from error
            raise
        return self._connection

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        try:
            await self.pool.release(self._connection)
        except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError) as failure:
            raise unavailable(failure) from failure
        finally:
            self._give_back(has_share=self.share is not None)
        if error is not None and (instead := translated(error)) is not None:
            raise instead from error

    def _give_back(self, *, has_share: bool) -> None:
        if self.share is not None and has_share:
            self.shares.give_back(self.share[0], reads=self.share[1])
        if self.limit is not None:
            self.limit.release()


@dataclass(slots=True, eq=False)
class OpenTransaction(AbstractAsyncContextManager[T]):
    """Runs its block in a transaction, and yields `view(connection)`. It rolls back if the block raises an error.

    A transaction that only reads ends without the checks of `commit`. After `timeout_seconds`, the connection is
    closed, so that pending statements fail.

    Raises DatabaseUnavailableError, NoFreeConnectionError, LockTimeoutError, DeadlockError.
    """

    loan: Loan
    opening: Opening
    begin: str
    setting: str
    view: Callable[[Any], T]
    timeout_seconds: int
    _connection: Any = field(init=False, default=None)
    _timer: asyncio.TimerHandle = field(init=False)
    _mark: TransactionMark = field(init=False)

    async def __aenter__(self) -> T:
        loop = asyncio.get_running_loop()
        connection = self._connection = await self.loan.__aenter__()
        self._timer = loop.call_later(ACQUIRE_TIMEOUT_SECONDS, close, connection)
        try:
            await self.opening.begin(connection, self.begin, setting=self.setting)
        except BaseException as error:
            await self._give_up(error)
            raise
        self._timer.cancel()
        self._timer = loop.call_later(self.timeout_seconds, close, connection)
        self._mark = TransactionMark()
        return self.view(connection)

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._end()
            else:
                await self._give_up(error)
        finally:
            self._mark.end()

    async def _end(self) -> None:
        try:
            await (commit(self._connection) if self.begin == "BEGIN" else self._connection.execute("COMMIT"))
        except BaseException as failure:
            await self._give_up(failure)
            raise
        await self._give_back(None)

    async def _give_up(self, error: BaseException) -> None:
        """Roll back, and return the connection. Raise the error that replaces an error of the driver."""
        try:
            await roll_back(self._connection)
        except BaseException as failure:  # the task was canceled
            await self._give_back(failure)
            raise
        await self._give_back(error)

    async def _give_back(self, error: BaseException | None) -> None:
        self._timer.cancel()
        await self.loan.__aexit__(None if error is None else type(error), error, None)
