"""Transactions. Each belongs to one account; only `discovery` reads over all accounts.

Row Level Security lets a transaction see only the rows of its account.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from fatura.open_transaction import mark_open_transaction
from fatura.store import multi_host
from fatura.store.pool import Opening, open_pool
from fatura.store.transaction_end import (
    UNAVAILABLE_ERRORS,
    DatabaseUnavailableError,
    commit,
    roll_back,
    time_limit,
)

__all__ = [
    "Database",
    "DatabaseUnavailableError",
    "DeadlockError",
    "Discovery",
    "LockTimeoutError",
    "Row",
    "Tx",
    "connect",
    "record",
]

TRANSACTION_TIMEOUT_SECONDS = 150
"""Maximum length of a transaction, even if the server or the network stops responding."""
ACQUIRE_TIMEOUT_SECONDS = 10
"""Maximum wait for a free connection, and then for the answer to BEGIN."""
PING_TIMEOUT_SECONDS = 1

_TYPES_OF_DRIVER = (UUID, bytes, date, datetime, timedelta)
"""asyncpg returns these types as Python objects. msgspec converts all other values as it converts JSON."""

Row = asyncpg.Record
T = TypeVar("T")


class LockTimeoutError(Exception):
    """Another transaction held a lock for longer than LOCK_TIMEOUT_SECONDS."""


class DeadlockError(Exception):
    """The database aborted this transaction to end a deadlock; run it again."""


def record(kind: type[T], row: Row, **others: Any) -> T:
    """Build a dataclass from `others` and the columns that are named like its fields; convert text to enums."""
    return msgspec.convert({**row, **others}, kind, builtin_types=_TYPES_OF_DRIVER)


@dataclass(frozen=True, slots=True)
class Tx:
    """A transaction of one account; every statement takes `account_id` as its first parameter, `$1`."""

    _connection: Any
    account_id: UUID

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        return await self._connection.fetch(sql, self.account_id, *values)

    async def fetch_by_values(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        """Run a read whose filters may be null, planned for these values.

        PostgreSQL then drops null filters and uses an index for the others. A generic plan would read every row.
        """
        await self._connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
        return await self.fetch(sql, *values)

    async def fetchrow(self, sql: LiteralString, *values: object) -> Row | None:
        return await self._connection.fetchrow(sql, self.account_id, *values)

    async def fetch_as(self, kind: type[T], sql: LiteralString, *values: object) -> Sequence[T]:
        """Run a statement and return its rows as records of a dataclass."""
        return [record(kind, row) for row in await self.fetch(sql, *values)]

    async def fetchrow_as(self, kind: type[T], sql: LiteralString, *values: object) -> T | None:
        """Run a statement and return its first row as a record of a dataclass."""
        row = await self.fetchrow(sql, *values)
        return None if row is None else record(kind, row)

    async def fetchval(self, sql: LiteralString, *values: object) -> Any:
        return await self._connection.fetchval(sql, self.account_id, *values)

    async def execute(self, sql: LiteralString, *values: object) -> int:
        """Run a statement and return how many rows it changed."""
        status: str = await self._connection.execute(sql, self.account_id, *values)
        return int(status.rsplit(" ", 1)[-1])


@dataclass(frozen=True, slots=True)
class Discovery:
    """A read-only transaction over all accounts, to find those with due work (`store.discovery`)."""

    _connection: Any

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        return await self._connection.fetch(sql, *values)

    async def fetch_as(self, kind: type[T], sql: LiteralString, *values: object) -> Sequence[T]:
        """Run a read over all accounts and return its rows as records of a dataclass."""
        return [record(kind, row) for row in await self.fetch(sql, *values)]


@dataclass(slots=True, eq=False)
class Database:
    """The pool of connections to one PostgreSQL database."""

    _pool: Any
    _opening: Opening
    _url: str
    _pooler_url: str | None

    def transaction(self, account_id: UUID, *, snapshot: bool = False) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction of one account: committed when the block ends, rolled back when it raises.

        A `snapshot` is read-only, and all its statements see the same state. So the total of a list matches its page.
        Raises DatabaseUnavailableError, LockTimeoutError, DeadlockError.
        """
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if snapshot else "BEGIN"
        setting = f"SET LOCAL app.account = '{account_id}'"
        return self._transaction(begin, setting, view=partial(Tx, account_id=account_id))

    def discovery(self) -> AbstractAsyncContextManager[Discovery]:
        """Open a read-only transaction over all accounts. Raises DatabaseUnavailableError."""
        setting = "SET LOCAL app.discover = 'on'"
        if not self._opening.has_citus:  # Citus cannot make a generic plan for a read over several nodes
            setting += "; SET LOCAL plan_cache_mode = 'force_generic_plan'; SET LOCAL jit = 'off'"
        return self._transaction("BEGIN READ ONLY", setting, view=Discovery)

    async def ping(self) -> datetime:
        """Return the time of the database, over a new connection, because all those of the pool may be in use.

        If there is a pooler, it must accept a connection as well. Raises DatabaseUnavailableError.
        """
        try:
            if self._pooler_url is not None:
                (await multi_host.connect(self._pooler_url, timeout=PING_TIMEOUT_SECONDS)).terminate()
            connection = await multi_host.connect(self._url, timeout=PING_TIMEOUT_SECONDS)
            try:
                return await connection.fetchval("SELECT clock_timestamp()", timeout=PING_TIMEOUT_SECONDS)
            finally:
                connection.terminate()
        except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError) as error:
            raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error

    async def notify(self, lanes: str) -> None:
        """Notify all workers that the named lanes have work. Workers also poll, so a lost notification is harmless."""
        async with self._acquire() as connection:
            # One message, without parameters: a pooler may send a second message over another server connection.
            await connection.execute(f"NOTIFY fatura_work, '{lanes}'")

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def _transaction(self, begin: str, setting: str, *, view: Callable[[Any], T]) -> AsyncGenerator[T]:
        async with self._acquire() as connection:
            try:
                with time_limit(connection, ACQUIRE_TIMEOUT_SECONDS):
                    await self._opening.begin(connection, begin, setting=setting)
                with time_limit(connection, TRANSACTION_TIMEOUT_SECONDS), mark_open_transaction():
                    yield view(connection)
                    # `commit` also checks that the writes were kept. A read-only transaction has no writes.
                    await (commit(connection) if begin == "BEGIN" else connection.execute("COMMIT"))
            except BaseException:
                await roll_back(connection)
                raise

    @asynccontextmanager
    async def _acquire(self) -> AsyncGenerator[Any]:
        is_connected = False
        try:
            async with asyncio.timeout(ACQUIRE_TIMEOUT_SECONDS):  # `acquire(timeout=...)` would start a task
                connection = await self._pool.acquire()
            is_connected = True
            try:
                yield connection
            finally:
                await self._pool.release(connection)
        except asyncpg.LockNotAvailableError as error:
            raise LockTimeoutError(str(error)) from error
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
            raise DeadlockError(str(error)) from error
        except UNAVAILABLE_ERRORS as error:
            raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error
        except asyncpg.PostgresError as error:
            if is_connected:
                raise
            raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error


async def connect(
    url: str,
    *,
    max_connections: int,
    pooler_url: str | None = None,
    connection_class: "type[asyncpg.Connection[Row]]" = asyncpg.Connection,
) -> Database:
    """Open a database. A `connection_class` may observe every statement, or make it fail.

    Raises DatabaseUnavailableError with the reason.
    """
    try:
        pool, opening = await open_pool(
            url, max_connections=max_connections, pooler_url=pooler_url, connection_class=connection_class
        )
    except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError) as error:
        raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error
    return Database(pool, opening, url, pooler_url)
