"""End transactions: confirm commits, roll back, and close connections that no longer respond."""

from contextlib import suppress
from typing import Any

import asyncpg

from fatura.failure_text import OwnTextError, reason_of

UNAVAILABLE_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server announced its shutdown but has not closed the connection yet
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.OperatorInterventionError,  # the server stops, has crashed, starts, or canceled a statement
    asyncpg.PostgresSystemError,  # the server's disk fails
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalServerError,  # a node of a Citus cluster does not answer
)
"""The errors of the driver that mean that the database is unavailable."""


class DatabaseUnavailableError(OwnTextError):
    """The database cannot be reached, or closed the connection. A commit in progress may have succeeded or not."""


def unavailable(error: Exception) -> DatabaseUnavailableError:
    """Return the exception to raise instead of an error of the driver."""
    return DatabaseUnavailableError(f"the database is unavailable: {reason_of(error)}")


async def commit(connection: Any) -> None:
    """Commit. Raise DatabaseUnavailableError if the server answers with a warning or with ROLLBACK.

    A warning means that the wait for a synchronous standby was canceled, so a failover could lose the commit. The
    answer ROLLBACK means that an earlier statement of the transaction had failed.
    """
    warnings: list[str] = []

    def listener(_connection: object, message: asyncpg.PostgresLogMessage) -> None:
        warnings.append(str(message))

    connection.add_log_listener(listener)
    try:
        status = await connection.execute("COMMIT")
    finally:
        connection.remove_log_listener(listener)
    if status != "COMMIT" or warnings:
        raise DatabaseUnavailableError(f"COMMIT answered {status} {' '.join(warnings)}")


async def roll_back(connection: Any) -> None:
    """Roll back, or close the connection if that fails."""
    try:
        await connection.execute("ROLLBACK")
    except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError):
        close(connection)


def close(connection: Any) -> None:
    """Close a connection at once, so that its pending statements fail.

    This does not send a cancel request, because a cancel request could end the wait of a COMMIT for the standby. Other
    transactions would then see data that a failover can still lose.
    """
    with suppress(asyncpg.InterfaceError):  # the connection is already closed and no longer in the pool
        connection.terminate()
