"""The connection pool, and how transactions begin on PostgreSQL itself, through a pooler or on Citus."""

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from fatura.store import multi_host

LOCK_TIMEOUT_MS = 2500
"""Maximum wait of a statement for a lock. A waiting statement occupies a connection (D-149)."""
STATEMENT_TIMEOUT_SECONDS = 120
IDLE_TIMEOUT_SECONDS = 30
STATEMENTS_KEPT = 1000
"""Maximum number of prepared statements that a connection caches.

The engine has fewer statements than that. With a smaller cache, a worker discards statements that it soon needs again.
"""
STATEMENT_SECONDS = 60
"""How long a connection keeps a prepared statement.

After this time, PostgreSQL plans the statement again. A plan for small tables is slow after the tables have grown.
"""
AUTOGROUP_ATTEMPTS = 3
AUTOGROUP_PAUSE_SECONDS = 1
_NAMES = {"application_name": "fatura", "timezone": "UTC"}
LIMITS = {
    "lock_timeout": f"{LOCK_TIMEOUT_MS}ms",
    "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_TIMEOUT_SECONDS}s",
}


PLANNING = {"plan_cache_mode": "force_generic_plan", "jit": "off"}
"""Settings with which PostgreSQL plans each prepared statement once, for an account of average size.

Without these settings, PostgreSQL plans the first five executions for the given account. If many rows were just
inserted, the table's statistics may lack this account, and the planner expects no rows. The planner may then choose an
index with which each look-up of one row reads all rows of the account.
"""


CITUS_SETTINGS = f"SET LOCAL plan_cache_mode = 'auto'; SET LOCAL lock_timeout = '{LIMITS['lock_timeout']}';"
"""Settings of each transaction on Citus.

Citus cannot make a generic plan for a read over several nodes. It passes settings to its nodes only if they are set in
the transaction. With `lock_timeout` set on the connection only, a statement waited 120 s for a locked row on a node.
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """How transactions begin: `settings` are SET LOCAL statements after BEGIN, each ending with a semicolon.

    `server_version` is PostgreSQL's major and minor version. `owns_tables` is true if the connection's role may change
    the tables, because it owns them.
    """

    settings: str = ""
    has_citus: bool = False
    server_version: tuple[int, int] = (0, 0)
    owns_tables: bool = False

    async def begin(self, connection: Any, begin: str, *, setting: str) -> None:
        """Begin a transaction and apply the settings: in one message, except on Citus."""
        if self.has_citus:
            # Citus sends the whole message with SET LOCAL to its nodes. They must not get BEGIN, so it is sent
            # separately.
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
    niceness: int,
) -> tuple[Any, Opening]:
    """Open a pool. Ask the server which statements must begin each transaction, and return these as `Opening`.

    Raises UNAVAILABLE_ERRORS, asyncpg.PostgresError.
    """
    is_pooled = pooler_url is not None
    pool = await asyncpg.create_pool(
        pooler_url or url,
        connect=multi_host.connect,
        init=partial(_prepare, niceness=niceness),
        min_size=1,
        max_size=max_connections,
        connection_class=connection_class,
        reset=_keep_settings,
        max_inactive_connection_lifetime=300,
        statement_cache_size=0 if is_pooled else STATEMENTS_KEPT,
        max_cached_statement_lifetime=STATEMENT_SECONDS,
        server_settings=_NAMES if is_pooled else {**_NAMES, **LIMITS, **PLANNING},
    )
    async with pool.acquire() as connection, connection.transaction():
        server: Any = await connection.fetchrow(_SERVER)
    settings = "" if server["bound_by_row_security"] else "SET LOCAL ROLE fatura_app;"
    if (
        is_pooled
    ):  # a pooler may run each transaction on another connection, where session settings would be missing
        settings += " ".join(f"SET LOCAL {name} = '{value}';" for name, value in (LIMITS | PLANNING).items())
    if server["has_citus"]:
        settings += CITUS_SETTINGS
    version = divmod(server["version"], 10_000)
    opening = Opening(
        settings,
        has_citus=server["has_citus"],
        server_version=version,
        owns_tables=server["owns_tables"],
    )
    return pool, opening


async def _prepare(connection: Any, *, niceness: int) -> None:
    """Prepare a new connection. With a `niceness`, lower the priority of its backend, which must run on this host."""
    if niceness:
        await _lower_priority(connection.get_server_pid(), niceness)
    await _preload_array_types(connection)


async def _lower_priority(pid: int, niceness: int) -> None:
    """Lower the priority of a backend process, and on Linux also that of its session of processes, if this is allowed.

    If `sched_autogroup_enabled` is set, Linux first divides the CPU among sessions of processes. Each backend has a
    session of its own, so the backend's niceness alone would have no effect. Linux lets a process without privileges
    change ten priorities of sessions per second, so a refused change is tried again after a pause.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + niceness)
    for _ in range(AUTOGROUP_ATTEMPTS):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness))  # noqa: ASYNC240 - the file is in memory
        except BlockingIOError:
            await asyncio.sleep(AUTOGROUP_PAUSE_SECONDS)
        except OSError:
            return
        else:
            return


async def _preload_array_types(connection: Any) -> None:
    """Load all array types that statements use.

    Without this, asyncpg would look up each type at its first use, which takes 8 to 12 ms. SET LOCAL and the query run
    in one transaction, because a pooler could otherwise send them to different server connections.

    Citus hides the tables of its shards from catalogue queries. Because of this, a catalogue query takes a second of
    the coordinator's CPU. The value 'off' of `citus.override_table_visibility` ends the hiding. PostgreSQL without
    Citus ignores this setting.
    """
    async with connection.transaction():
        await connection.execute("SET LOCAL citus.override_table_visibility = 'off'")
        await connection.fetchrow(ARRAY_TYPES, *(None,) * ARRAY_TYPES.count("$"))


async def _keep_settings(_connection: Any) -> None:
    """Do nothing. asyncpg would reset a released connection, but all settings have ended with their transaction."""


ARRAY_TYPES = """
SELECT $1::uuid[], $2::text[], $3::int2[], $4::int4[], $5::int8[], $6::date[],
    $7::timestamptz[], $8::bool[], $9::bytea[]
"""

_SERVER = """
SELECT NOT (rolsuper OR rolbypassrls) AS bound_by_row_security,
    current_setting('server_version_num')::integer AS version,
    EXISTS (SELECT FROM pg_class c WHERE c.oid = to_regclass('account') AND c.relowner = r.oid) AS owns_tables,
    EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS has_citus FROM pg_roles r WHERE rolname = current_user
"""
