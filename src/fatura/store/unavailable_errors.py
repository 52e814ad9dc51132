"""The errors of the driver that mean that the database is unavailable."""

import asyncpg

UNAVAILABLE_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server has announced its end but not yet closed the connection
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.OperatorInterventionError,  # shut down, crashed, starting, statement canceled or timed out
    asyncpg.PostgresSystemError,  # the server's disk fails
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalServerError,  # a node of a cluster does not answer the others
)
