"""The connection pool and the one way to a transaction: every transaction belongs to one account.

Row Level Security lets a transaction see its own account's rows only; `discovery` alone reads over all of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import asyncpg

from fatura.open_transaction import mark_open_transaction
from fatura.store import array_types, multi_host
from fatura.store.unavailable_errors import GONE

LOCK_TIMEOUT_SECONDS = 5
"""How long a statement waits for another transaction's lock (D-14)."""
STATEMENT_TIMEOUT_SECONDS = 120
IDLE_TIMEOUT_SECONDS = 30
TRANSACTION_TIMEOUT_SECONDS = 150
"""How long a transaction may last here, whatever the server does: a frozen one, or a cut line, says nothing at all."""
ACQUIRE_TIMEOUT_SECONDS = 10
"""How long a connection is waited for, and then for its first answer: it may lead to a server that froze."""
PING_TIMEOUT_SECONDS = 1
STATEMENTS_KEPT = 100
"""How many prepared statements a connection keeps."""
_NAMES = {"application_name": "fatura", "timezone": "UTC"}
LIMITS = {
    "lock_timeout": f"{LOCK_TIMEOUT_SECONDS}s",
    "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_TIMEOUT_SECONDS}s",
}
_LOCAL_LIMITS = " ".join(f"SET LOCAL {name} = '{value}';" for name, value in LIMITS.items())
_BEGIN, _BEGIN_SNAPSHOT = "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

Row = asyncpg.Record
T = TypeVar("T")


class DatabaseUnavailableError(Exception):
    """The database cannot be reached, or went away: what was being committed may or may not have happened."""


class LockTimeoutError(Exception):
    """Another transaction held a lock for longer than LOCK_TIMEOUT_SECONDS."""


class DeadlockError(Exception):
    """The database chose this transaction to end a deadlock; it may simply be run again."""


def fields(row: Row, **converted: Any) -> dict[str, Any]:
    """Return a row's columns by name, some of them converted, to make a typed result of."""
    return {**row, **converted}


class Tx:
    """A transaction of one account; every statement takes `account_id` as its first parameter, `$1`."""

    __slots__ = ("_connection", "account_id")

    def __init__(self, connection: Any, account_id: UUID) -> None:
        """Wrap a connection on which the transaction was begun."""
        self._connection = connection
        self.account_id = account_id

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        """Run a statement with `$1` = the account, and return its rows."""
        return await self._connection.fetch(sql, self.account_id, *values)

    async def fetch_by_values(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        """Run a read with filters that may be null, planned for these very values, `$1` = the account.

        What is null then falls away, and the rest can use an index; one plan for all values would read every row.
        """
        await self._connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
        return await self.fetch(sql, *values)

    async def fetchrow(self, sql: LiteralString, *values: object) -> Row | None:
        """Run a statement with `$1` = the account, and return its first row."""
        return await self._connection.fetchrow(sql, self.account_id, *values)

    async def fetchval(self, sql: LiteralString, *values: object) -> Any:
        """Run a statement with `$1` = the account, and return its first value."""
        return await self._connection.fetchval(sql, self.account_id, *values)

    async def execute(self, sql: LiteralString, *values: object) -> int:
        """Run a statement with `$1` = the account, and return how many rows it touched."""
        status: str = await self._connection.execute(sql, self.account_id, *values)
        return int(status.rsplit(" ", 1)[-1])


class Discovery:
    """A read-only look over all accounts, to find out which have work (`store.discovery`)."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        """Wrap a connection on which the transaction was begun."""
        self._connection = connection

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Row]:
        """Run a read over all accounts."""
        return await self._connection.fetch(sql, *values)


class Database:
    """The pool of connections to one PostgreSQL database."""

    __slots__ = ("_is_spread", "_pool", "_pooler_url", "_settings", "_url")

    def __init__(
        self,
        pool: Any,
        url: str,
        *,
        bound_by_row_security: bool,
        pooler_url: str | None,
        is_spread: bool,
    ) -> None:
        """Keep the pool; a role that Row Level Security does not bind steps down in every transaction."""
        self._pool = pool
        self._is_spread = is_spread
        self._url = url
        self._pooler_url = pooler_url
        self._settings = "" if bound_by_row_security else "SET LOCAL ROLE fatura_app;"
        self._settings += "" if pooler_url is None else _LOCAL_LIMITS

    def transaction(self, account_id: UUID, *, snapshot: bool = False) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction of one account: committed when the block ends, rolled back when it raises.

        A `snapshot` only reads, and all its statements see the same moment: a list's total is that of its pages.
        Raises DatabaseUnavailableError, LockTimeoutError, DeadlockError.
        """
        begin, setting = _BEGIN_SNAPSHOT if snapshot else _BEGIN, f"SET LOCAL app.account = '{account_id}'"
        return self._transaction(begin, setting, shown=partial(Tx, account_id=account_id))

    def discovery(self) -> AbstractAsyncContextManager[Discovery]:
        """Open a read-only transaction over all accounts, planned once. Raises DatabaseUnavailableError."""
        settings = "SET LOCAL app.discover = 'on'", "SET LOCAL plan_cache_mode = 'force_generic_plan'"
        return self._transaction("BEGIN READ ONLY", "; ".join(settings), shown=Discovery)

    async def ping(self) -> datetime:
        """Return the database's clock, over a connection of its own: a busy pool is not a database that is away.

        A pooler has to answer, too, however busy its connections are. Raises DatabaseUnavailableError.
        """
        try:
            if self._pooler_url is not None:
                (await multi_host.connect(self._pooler_url, timeout=PING_TIMEOUT_SECONDS)).terminate()
            connection = await multi_host.connect(self._url, timeout=PING_TIMEOUT_SECONDS)
            try:
                return await connection.fetchval("SELECT clock_timestamp()", timeout=PING_TIMEOUT_SECONDS)
            finally:
                connection.terminate()
        except (*GONE, asyncpg.PostgresError) as error:
            raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error

    async def notify(self, lanes: str) -> None:
        """Tell all workers that there is work in the named lanes; a hint, the sweep is the truth."""
        async with self._acquire() as connection:
            # One message without parameters: between two of them a pooler may change the connection.
            await connection.execute(f"NOTIFY fatura_work, '{lanes}'")

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    @asynccontextmanager
    async def _transaction(self, begin: str, setting: str, *, shown: Callable[[Any], T]) -> AsyncGenerator[T]:
        changes = begin == _BEGIN  # what only reads has nothing that its commit could lose
        async with self._acquire() as connection:
            try:
                with _deadline(connection, ACQUIRE_TIMEOUT_SECONDS):
                    if self._is_spread:  # Citus passes on the whole message that a SET LOCAL came in
                        await connection.execute(begin)
                        begin = ""
                    await connection.execute(f"{begin}; {self._settings} {setting}")
                with _deadline(connection, TRANSACTION_TIMEOUT_SECONDS), mark_open_transaction():
                    yield shown(connection)
                    await (_commit(connection) if changes else connection.execute("COMMIT"))
            except BaseException:
                await _roll_back(connection)
                raise

    @asynccontextmanager
    async def _acquire(self) -> AsyncGenerator[Any]:
        is_connected = False
        try:
            async with asyncio.timeout(ACQUIRE_TIMEOUT_SECONDS):  # the pool's own timeout starts a task
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
        except GONE as error:
            raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error
        except asyncpg.PostgresError as error:
            if is_connected:
                raise
            raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error  # it lets nobody in


@contextmanager
def _deadline(connection: Any, seconds: int) -> Generator[None]:
    """Throw the connection away if the block lasts longer: whatever waits on it then fails.

    No cancel is asked for: it would end a COMMIT's wait for the standby, and show what may still be lost.
    """
    due = asyncio.get_running_loop().call_later(seconds, _throw_away, connection)
    try:
        yield
    finally:
        due.cancel()


async def _commit(connection: Any) -> None:
    """Commit, and believe it only when the server says so and warns of nothing.

    A server with synchronous replication whose wait for its standby is canceled warns, and says COMMIT all the same;
    one whose transaction had failed says ROLLBACK. Raises DatabaseUnavailableError.
    """
    warnings: list[str] = []

    def hear(_connection: object, message: asyncpg.PostgresLogMessage) -> None:
        warnings.append(str(message))

    connection.add_log_listener(hear)
    try:
        status = await connection.execute("COMMIT")
    finally:
        connection.remove_log_listener(hear)
    if status != "COMMIT" or warnings:
        message = f"COMMIT answered {status} {' '.join(warnings)}"
        raise DatabaseUnavailableError(message)


async def _roll_back(connection: Any) -> None:
    """End a failed transaction; a connection that cannot even do that is thrown away."""
    try:
        await connection.execute("ROLLBACK")
    except (*GONE, asyncpg.PostgresError):
        _throw_away(connection)


def _throw_away(connection: Any) -> None:
    with suppress(asyncpg.InterfaceError):  # it is closed, and has left the pool already
        connection.terminate()


async def _keep_as_is(_connection: Any) -> None:
    """Reset nothing between uses: every setting of ours is local to its transaction."""


async def connect(
    url: str,
    *,
    max_connections: int,
    pooler_url: str | None = None,
    connection_class: "type[asyncpg.Connection[Row]]" = asyncpg.Connection,
) -> Database:
    """Open a pool; a `connection_class` of one's own may watch every statement, or make it fail.

    Through a pooler, whose connections change hands after every transaction, nothing outlives one: no prepared
    statement, and the limits are set in each. Raises DatabaseUnavailableError with the reason.
    """
    is_pooled = pooler_url is not None
    try:
        pool = await asyncpg.create_pool(
            pooler_url or url,
            connect=multi_host.connect,
            init=array_types.learn,
            min_size=1,
            max_size=max_connections,
            connection_class=connection_class,
            reset=_keep_as_is,
            max_inactive_connection_lifetime=300,
            statement_cache_size=0 if is_pooled else STATEMENTS_KEPT,
            server_settings={**_NAMES, **({} if is_pooled else LIMITS)},
        )
        async with pool.acquire() as connection, connection.transaction():
            role: Any = await connection.fetchrow(_ASK_ROLE_AND_CITUS)
    except (*GONE, asyncpg.PostgresError) as error:
        raise DatabaseUnavailableError(f"{type(error).__name__}: {error}") from error
    return Database(pool, url, pooler_url=pooler_url, **role)


_ASK_ROLE_AND_CITUS = """
SELECT NOT (rolsuper OR rolbypassrls) AS bound_by_row_security,
    EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS is_spread FROM pg_roles WHERE rolname = current_user
"""
