"""The connection pool, and how transactions begin on PostgreSQL itself, through a pooler or on Citus."""

from dataclasses import dataclass
from typing import Any

import asyncpg

from fatura.store import multi_host

LOCK_TIMEOUT_SECONDS = 5
"""Maximum wait of a statement for a lock (D-14)."""
STATEMENT_TIMEOUT_SECONDS = 120
IDLE_TIMEOUT_SECONDS = 30
STATEMENTS_KEPT = 100
"""Maximum number of prepared statements that a connection caches."""
_NAMES = {"application_name": "fatura", "timezone": "UTC"}
LIMITS = {
    "lock_timeout": f"{LOCK_TIMEOUT_SECONDS}s",
    "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_TIMEOUT_SECONDS}s",
}


@dataclass(frozen=True, slots=True)
class Opening:
    """How transactions begin: `settings` are SET LOCAL statements after BEGIN, each ending with a semicolon."""

    settings: str = ""
    has_citus: bool = False

    async def begin(self, connection: Any, begin: str, *, setting: str) -> None:
        """Begin a transaction and apply the settings: in one message, except on Citus."""
        if self.has_citus:
            # Citus passes the whole message that contains SET LOCAL to its nodes, so BEGIN is sent separately.
            await connection.execute(begin)
            await connection.execute(f"{self.settings} {setting}")
        else:
            await connection.execute(f"{begin}; {self.settings} {setting}")


async def open_pool(
    url: str,
    *,
    max_connections: int,
    pooler_url: str | None,
    connection_class: "type[asyncpg.Connection[asyncpg.Record]]",
) -> tuple[Any, Opening]:
    """Open a pool and find out how its transactions begin. Raises UNAVAILABLE_ERRORS, asyncpg.PostgresError."""
    is_pooled = pooler_url is not None
    pool = await asyncpg.create_pool(
        pooler_url or url,
        connect=multi_host.connect,
        init=_preload_array_types,
        min_size=1,
        max_size=max_connections,
        connection_class=connection_class,
        reset=_keep_settings,
        max_inactive_connection_lifetime=300,
        statement_cache_size=0 if is_pooled else STATEMENTS_KEPT,
        server_settings=_NAMES if is_pooled else {**_NAMES, **LIMITS},
    )
    async with pool.acquire() as connection, connection.transaction():
        server: Any = await connection.fetchrow(_SERVER)
    settings = "" if server["bound_by_row_security"] else "SET LOCAL ROLE fatura_app;"
    if is_pooled:  # a pooler may run each transaction on another connection, so session settings do not last
        settings += " ".join(f"SET LOCAL {name} = '{value}';" for name, value in LIMITS.items())
    return pool, Opening(settings, has_citus=server["has_citus"])


async def _preload_array_types(connection: Any) -> None:
    """Load all array types that statements use. asyncpg would otherwise query each at its first use, in 8 to 12 ms.

    The query runs in a transaction. Otherwise, a pooler could send its messages to different server connections.
    """
    async with connection.transaction():
        await connection.fetchrow(ARRAY_TYPES, *(None,) * ARRAY_TYPES.count("$"))


async def _keep_settings(_connection: Any) -> None:
    """Replace asyncpg's reset of a released connection. No reset is needed: settings end with each transaction."""


ARRAY_TYPES = """
SELECT $1::uuid[], $2::text[], $3::int2[], $4::int4[], $5::int8[], $6::date[],
    $7::timestamptz[], $8::bool[], $9::bytea[]
"""

_SERVER = """
SELECT NOT (rolsuper OR rolbypassrls) AS bound_by_row_security,
    EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS has_citus FROM pg_roles WHERE rolname = current_user
"""
