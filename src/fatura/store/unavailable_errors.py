"""When the database is away, in the driver's words."""

import asyncpg

GONE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server's last words were read, and its hanging up not yet; or none leads
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.OperatorInterventionError,  # shut down, crashed, starting, statement canceled or timed out
    asyncpg.PostgresSystemError,  # the server's disk fails
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalServerError,  # a node of several does not answer the others
)
"""What the driver raises when the database is away, or cannot serve just now."""
