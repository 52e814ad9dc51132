"""Transactions. Each belongs to one account; only a `discovery` reads the rows of all accounts.

Row Level Security hides the rows of all other accounts from a transaction.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from fatura import tracing
from fatura.failure_text import OwnTextError
from fatura.store.connection_shares import ConnectionShares
from fatura.store.open_transaction import (
    DeadlockError,
    Loan,
    LockTimeoutError,
    NoFreeConnectionError,
    OpenTransaction,
    translated,
)
from fatura.store.ping import Ping
from fatura.store.pool import LOCK_TIMEOUT_MS, Opening, open_pool
from fatura.store.traced_connection import TracedConnection
from fatura.store.transaction_end import UNAVAILABLE_ERRORS, DatabaseUnavailableError, unavailable

__all__ = [
    "LOCK_TIMEOUT_MS",
    "Database",
    "DatabaseUnavailableError",
    "DeadlockError",
    "Discovery",
    "LockTimeoutError",
    "NoFreeConnectionError",
    "Row",
    "RowCountError",
    "Tx",
    "check_rows",
    "connect",
    "record",
]

TRANSACTION_TIMEOUT_SECONDS = 150
"""Maximum duration of a transaction, even if the server or the network stops responding."""
INSPECTION_TIMEOUT_SECONDS = 3600
"""Maximum duration of an `inspection`."""

_TYPES_OF_DRIVER = (UUID, bytes, date, datetime, timedelta)
"""asyncpg returns these types as Python objects. msgspec converts all other values as it converts JSON."""

Row = asyncpg.Record
T = TypeVar("T")


class RowCountError(OwnTextError):
    """A statement changed fewer or more rows than it had to, so its transaction must not commit."""


def check_rows(changed: int, expected: int) -> None:
    """Raise RowCountError if the numbers differ. Unlike an assertion, this check also runs under `python -O`."""
    if changed != expected:
        raise RowCountError(f"{changed} rows were changed instead of {expected}")


def record(kind: type[T], row: Row, **others: Any) -> T:
    """Build an instance of the dataclass `kind`. A field's value comes from `others` or, if not there, from the row.

    Text is converted to enums.
    """
    return msgspec.convert({**row, **others}, kind, builtin_types=_TYPES_OF_DRIVER)


@dataclass(frozen=True, slots=True)
class Tx:
    """A transaction of one account; every statement takes `account_id` as its first parameter, `$1`."""

    _connection: Any
    account_id: UUID

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        return await self._connection.fetch(sql, self.account_id, *values)

    async def fetch_by_values(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        """Run a query whose filters may be null. PostgreSQL plans the query for the given values.

        This plan skips the null filters and uses an index for the others. A generic plan would read every row.
        """
        await self._connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
        return await self.fetch(sql, *values)

    async def fetchrow(self, sql: LiteralString, *values: object) -> Row | None:
        return await self._connection.fetchrow(sql, self.account_id, *values)

    async def fetch_as(self, kind: type[T], sql: LiteralString, *values: object) -> Sequence[T]:
        """Run a statement and return its rows as records of a dataclass."""
        return [record(kind, row) for row in await self.fetch(sql, *values)]

    async def fetchrow_as(self, kind: type[T], sql: LiteralString, *values: object) -> T | None:
        row = await self.fetchrow(sql, *values)
        return None if row is None else record(kind, row)

    async def fetchval(self, sql: LiteralString, *values: object) -> Any:
        return await self._connection.fetchval(sql, self.account_id, *values)

    async def clock_time(self) -> datetime:
        return await self._connection.fetchval("SELECT clock_timestamp()")

    async def allow_erasure(self) -> None:
        """Let the rest of the transaction remove texts from rows that the trigger `keep_unless_erased` protects."""
        await self._connection.execute("SET LOCAL app.erasure = 'on'")

    async def execute(self, sql: LiteralString, *values: object) -> int:
        """Run a statement and return how many rows it changed, or selected."""
        status: str = await self._connection.execute(sql, self.account_id, *values)
        return int(status.rsplit(" ", 1)[-1])

    async def allow_replaced_terms(self) -> None:
        """Let the rest of the transaction delete the items of replaced private terms (D-245)."""
        await self._connection.execute("SET LOCAL app.replaced_terms = 'on'")

    async def allow_retention(self) -> None:
        """Let the rest of the transaction delete rows that are kept until they are old (D-246)."""
        await self._connection.execute("SET LOCAL app.retention = 'on'")

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """If the block raises, undo its statements and raise the error. The caller may then continue the transaction.

        But after DatabaseUnavailableError, LockTimeoutError and DeadlockError, the transaction must end.
        """
        try:
            await self._connection.execute("SAVEPOINT part")
            try:
                yield
            except Exception:
                await self._connection.execute("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
                raise
            await self._connection.execute("RELEASE SAVEPOINT part")
        except Exception as error:
            if (instead := translated(error)) is not None:
                raise instead from error
            raise


@dataclass(frozen=True, slots=True)
class Discovery:
    """A read-only transaction over all accounts, to find those with due work (`store.discovery`)."""

    _connection: Any

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        return await self._connection.fetch(sql, *values)

    async def fetch_as(self, kind: type[T], sql: LiteralString, *values: object) -> Sequence[T]:
        return [record(kind, row) for row in await self.fetch(sql, *values)]


@dataclass(slots=True, eq=False)
class Database:
    """The pool of connections to one PostgreSQL database."""

    _pool: Any
    _opening: Opening
    _ping: Ping
    _shares: ConnectionShares
    _limit: asyncio.Semaphore | None = None

    @property
    def server_version(self) -> tuple[int, int]:
        """The major and minor version of PostgreSQL."""
        return self._opening.server_version

    @property
    def owns_tables(self) -> bool:
        """Whether the engine's role owns the tables. An owner can also change and drop the tables."""
        return self._opening.owns_tables

    def limited(self, limit: asyncio.Semaphore) -> "Database":
        """Return a copy of this database in which each open transaction holds the semaphore `limit`."""
        return replace(self, _limit=limit)

    def transaction(
        self, account_id: UUID, *, snapshot: bool = False, quick: bool = False
    ) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction of one account. It commits when the block ends, and rolls back if the block raises.

        A `snapshot` is read-only, and all its statements see the same state, so that a list's total matches
        its page. A `quick` transaction may write, but must not wait for locks that other transactions hold for long.
        A quarter of the pool is reserved for snapshots and quick transactions.
        Raises DatabaseUnavailableError, NoFreeConnectionError, LockTimeoutError, DeadlockError.
        """
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if snapshot else "BEGIN"
        setting = f"SET LOCAL app.account = '{account_id}'"
        share = (account_id, snapshot or quick)
        return self._transaction(begin, setting, view=partial(Tx, account_id=account_id), share=share)

    def inspection(self, account_id: UUID) -> AbstractAsyncContextManager[Tx]:
        """Open a read-only transaction of one account, with enough time and memory to sort many rows.

        Raises DatabaseUnavailableError, NoFreeConnectionError.
        """
        setting = (
            f"SET LOCAL app.account = '{account_id}'; SET LOCAL work_mem = '64MB'; "
            f"SET LOCAL statement_timeout = '{INSPECTION_TIMEOUT_SECONDS}s'"
        )
        return self._transaction(
            "BEGIN READ ONLY",
            setting,
            view=partial(Tx, account_id=account_id),
            share=(account_id, True),
            timeout_seconds=INSPECTION_TIMEOUT_SECONDS,
        )

    def discovery(self) -> AbstractAsyncContextManager[Discovery]:
        """Open a read-only transaction over all accounts. Raises DatabaseUnavailableError."""
        setting = "SET LOCAL app.discover = 'on'"
        if not self._opening.has_citus:
            # These settings make PostgreSQL use the indexes. PostgreSQL plans for a fixed share of due rows. Without
            # the settings, if fewer rows are due, PostgreSQL would read small tables instead of their indexes. If more
            # rows are due, PostgreSQL would read and sort all due rows to find the first 1,000.
            setting += "; SET LOCAL enable_seqscan = 'off'; SET LOCAL enable_sort = 'off'"
        return self._transaction("BEGIN READ ONLY", setting, view=Discovery)

    async def clock_time(self, tx: Tx, /) -> datetime:
        """Return the time of the database, read in an open transaction."""
        return await tx.clock_time()

    async def ping(self) -> datetime:
        """Return the time of the database, even while the whole pool is in use. Raises DatabaseUnavailableError."""
        return await self._ping.time()

    async def notify(self, lanes: str) -> None:
        """Notify all workers that the named lanes have work. Workers also poll, so a lost notification is harmless."""
        async with Loan(self._pool, self._shares) as connection:
            # With a parameter, the driver sends two messages, and a pooler may use two server connections for them.
            await connection.execute(f"NOTIFY fatura_work, '{lanes}'")

    async def close(self) -> None:
        self._ping.close()
        await self._pool.close()

    def _transaction(
        self,
        begin: str,
        setting: str,
        *,
        view: Callable[[Any], T],
        share: tuple[UUID, bool] | None = None,
        timeout_seconds: int | None = None,
    ) -> OpenTransaction[T]:
        loan = Loan(self._pool, self._shares, share, self._limit)
        seconds = timeout_seconds or TRANSACTION_TIMEOUT_SECONDS
        return OpenTransaction(loan, self._opening, begin, setting, view, seconds)


async def connect(
    url: str,
    *,
    max_connections: int,
    pooler_url: str | None = None,
    connection_class: "type[asyncpg.Connection[Row]] | None" = None,
    niceness: int = 0,
) -> Database:
    """Open the pool of a database. Tests pass a `connection_class` that observes statements or makes them fail.

    A `niceness` lowers the priority of the connections' backends, if PostgreSQL runs on this host.

    Raises DatabaseUnavailableError with the reason.
    """
    observing = TracedConnection if tracing.is_on() else asyncpg.Connection
    try:
        pool, opening = await open_pool(
            url,
            max_connections=max_connections,
            pooler_url=pooler_url,
            connection_class=connection_class or observing,
            niceness=niceness,
        )
    except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError) as error:
        raise unavailable(error) from error
    return Database(pool, opening, Ping(url, pooler_url=pooler_url), ConnectionShares(max_connections))
