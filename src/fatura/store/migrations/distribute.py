"""Distribute the tables by account over the nodes of a Citus cluster (`fatura migrate --distribute`)."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from fatura.store.migrations.runner import MigrationError, connected, lock_migrations

ROOT = "account"
"""All other distributed tables are colocated with this one, so that all rows of an account are on one node."""
AT_MOST_GIB = 10
"""Default limit of the data that is copied to the nodes. The tables are locked during the copy."""
LOCK_SECONDS = 20

Progress = Callable[[str, int], None]
"""Called before each table is distributed, with the table's name and the percentage of tables that are done."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    child: str
    parent: str
    name: str
    definition: str


async def distribute(
    url: str, *, at_most_gib: int = AT_MOST_GIB, progress: Progress = lambda _name, _percent: None
) -> list[str]:
    """Distribute all tables that are still local, in one transaction; return their names, parents first.

    Tables without an `account_id`, such as `schema_migration`, stay local. Raises MigrationError.
    """
    async with connected(url) as connection:
        await lock_migrations(connection)
        await _refuse_without_citus(connection)
        await _forbid_moves(connection)
        held_bytes = {row["name"]: row["held_bytes"] for row in await connection.fetch(_LOCAL_TABLES)}
        keys = [ForeignKey(**row) for row in await connection.fetch(_FOREIGN_KEYS)]
        ordered, closing = order(held_bytes, keys)
        if ordered:
            await _refuse_while_in_use(connection)
            _refuse_much(sum(held_bytes.values()), at_most_gib=at_most_gib)
            try:
                async with connection.transaction():
                    await _distribute_tables(connection, ordered, closing, progress=progress)
            except asyncpg.LockNotAvailableError as error:
                raise MigrationError(
                    f"a table is in use and was not free within {LOCK_SECONDS} s: "
                    "end the transactions that pg_stat_activity shows, and run again"
                ) from error
    return ordered


def order(tables: Collection[str], keys: Sequence[ForeignKey]) -> tuple[list[str], list[ForeignKey]]:
    """Return the tables, parents before children, and the foreign keys that close a cycle.

    The caller must drop the returned keys before it distributes the tables, and add them again afterwards. A parent
    that is not in `tables` counts as distributed.
    """
    ordered: list[str] = []
    closing: list[ForeignKey] = []
    waiting = set(tables)
    while waiting:
        holding = [
            key
            for key in keys
            if {key.child, key.parent} <= waiting and key.child != key.parent and key not in closing
        ]
        free = waiting - {key.child for key in holding}
        if not free:
            closing.append(next(key for key in holding if _is_above(key.child, key.parent, holding)))
        ordered += sorted(free)
        waiting -= free
    return ordered, closing


def _is_above(table: str, below: str, keys: Sequence[ForeignKey]) -> bool:
    """Return whether `below` refers to `table` by foreign keys, directly or through other tables."""
    above = {below}
    while found := {key.parent for key in keys if key.child in above} - above:
        above |= found
    return table in above


async def _refuse_without_citus(connection: Any) -> None:
    """Raise MigrationError if Citus or its nodes are missing, or if the role bypasses Row Level Security."""
    if not await connection.fetchval(_HAS_CITUS):
        raise MigrationError(
            "the database has no Citus: let an administrator run `CREATE EXTENSION citus` in it on every node, "
            "add the nodes by `citus_add_node`, and run again (docs/how-to/spread-over-machines.md)"
        )
    if not await connection.fetchval(_HAS_NODES):
        raise MigrationError(
            "Citus has no node for the tables: add some by `citus_add_node`, and run again "
            "(docs/how-to/spread-over-machines.md)"
        )
    if await connection.fetchval(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    ):
        raise MigrationError(
            "Row Level Security does not bind this role, and Citus does not pass SET ROLE to the nodes: let a role "
            "with LOGIN NOSUPERUSER NOBYPASSRLS own the tables, and connect as that one"
        )


async def _forbid_moves(connection: Any) -> None:
    """Revoke the right to execute the functions that move shards. Raises MigrationError if this role still has it.

    Row Level Security hides all rows from the role that owns the tables. If this role moved a shard, Citus would copy
    no rows and then drop the shard.
    """
    for statement in [row["revoke"] for row in await connection.fetch(_MOVING)]:
        with suppress(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    if left := await connection.fetch(_MOVING):
        lines = "\n".join(row["revoke"] + ";" for row in left)
        raise MigrationError(
            "this role may move shards, which would delete their rows: let an administrator run these lines in the "
            f"database on every node, and run again (docs/how-to/spread-over-machines.md)\n{lines}"
        )


async def _refuse_while_in_use(connection: Any) -> None:
    """Raise MigrationError if an API or worker process is connected."""
    if users := await connection.fetchval(_USERS):
        raise MigrationError(
            f"{users} connection(s) of Fatura are open, which would not see the rows on the nodes: "
            "stop the API and the workers, and run again"
        )


def _refuse_much(held_bytes: int, *, at_most_gib: int) -> None:
    """Raise MigrationError if the tables hold more than `at_most_gib`, because they are locked during the copy."""
    held_gib = -(-held_bytes // 2**30)
    if held_gib > at_most_gib:
        raise MigrationError(
            f"the tables hold {held_gib} GiB, and are locked while they are copied: "
            f"choose a quiet hour, and run again with --at-most-gib {held_gib}"
        )


async def _distribute_tables(
    connection: Any, tables: Sequence[str], closing: Sequence[ForeignKey], *, progress: Progress
) -> None:
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
    await connection.execute(_ALLOW_TRIGGERS)
    await connection.execute(_ONE_CONNECTION_A_NODE)
    for key in closing:
        await connection.execute(f"ALTER TABLE {key.child} DROP CONSTRAINT {key.name}")
    for done, name in enumerate(tables):
        progress(name, 100 * done // len(tables))
        await use_plain_policies(connection, name)
        await _distribute_table(connection, name)
    for key in closing:
        await connection.execute(f"ALTER TABLE {key.child} ADD CONSTRAINT {key.name} {key.definition}")
    for name in reversed(tables):
        await connection.execute(_DROP_LOCAL_ROWS, name)
    await connection.execute(_DATABASE_SETTINGS)


async def use_plain_policies(connection: Any, table: str) -> None:
    """Replace the policies of a table by equivalent ones without sub-selects, which Citus refuses (ADR 0014)."""
    for policy in await connection.fetch(_POLICIES, table):
        condition = _DISCOVERY if policy["cmd"] == "SELECT" else _OWN_ACCOUNT
        await connection.execute(f"ALTER POLICY {policy['name']} ON {table} USING ({condition})")


async def _distribute_table(connection: Any, name: str) -> None:
    """Distribute one table, without its policies and INSERT triggers, so that all rows are copied unchanged."""
    triggers = await connection.fetch(_INSERT_TRIGGERS, name)
    await connection.execute(f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY")
    for trigger in triggers:
        await connection.execute(f"DROP TRIGGER {trigger['name']} ON {name}")
    await connection.execute(_DISTRIBUTE, name, "none" if name == ROOT else ROOT)
    for trigger in triggers:
        await connection.execute(trigger["definition"])
    await connection.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")


_MOVING = """
SELECT format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC, %I', p.oid::regprocedure, current_user) AS revoke
FROM pg_proc p
WHERE p.proname IN (
        'citus_move_shard_placement', 'master_move_shard_placement', 'citus_copy_shard_placement',
        'master_copy_shard_placement', 'citus_rebalance_start', 'rebalance_table_shards', 'replicate_table_shards',
        'citus_drain_node', 'master_drain_node', 'citus_split_shard_by_split_points', 'isolate_tenant_to_new_shard',
        'citus_schema_move', 'undistribute_table', 'alter_distributed_table', 'alter_table_set_access_method'
    )
    AND has_function_privilege(current_user, p.oid, 'EXECUTE')
ORDER BY 1
"""
"""The functions that move, copy or rewrite shards and that this role may execute."""

_OWN_ACCOUNT = "account_id = nullif(current_setting('app.account', true), '')::uuid"
_DISCOVERY = "nullif(current_setting('app.discover', true) = 'on', false) IS NOT NULL"

_POLICIES = """
SELECT p.policyname AS name, p.cmd FROM pg_policies p WHERE p.schemaname = current_schema() AND p.tablename = $1
"""

_ALLOW_TRIGGERS = (
    # safe, because each trigger reads only the row that fired it
    "SET LOCAL citus.enable_unsafe_triggers = on"
)
_ONE_CONNECTION_A_NODE = (
    "SET LOCAL citus.multi_shard_modify_mode = 'sequential'"  # Citus needs this for foreign keys
)

_INSERT_TRIGGERS = """
SELECT t.tgname AS name, pg_get_triggerdef(t.oid) AS definition FROM pg_trigger t
WHERE t.tgrelid = $1::text::regclass AND NOT t.tgisinternal AND t.tgtype & 4 <> 0
"""

_DISTRIBUTE = "SELECT create_distributed_table($1::text::regclass, 'account_id', colocate_with => $2)"

_DROP_LOCAL_ROWS = "SELECT truncate_local_data_after_distributing_table($1::text::regclass)"

_DATABASE_SETTINGS = """
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET citus.propagate_set_commands = local', current_database());
    EXECUTE format('ALTER DATABASE %I SET citus.enable_unsafe_triggers = on', current_database());
END $$
"""
"""With these settings, Citus passes `app.account` to the nodes, and later migrations can create triggers."""

_HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

_HAS_NODES = """
SELECT EXISTS (SELECT FROM pg_dist_node WHERE isactive AND shouldhaveshards AND noderole = 'primary')
"""

_LOCAL_TABLES = """
SELECT c.relname AS name, pg_table_size(c.oid) AS held_bytes
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'account_id' AND NOT a.attisdropped
LEFT JOIN pg_dist_partition p ON p.logicalrelid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND p.logicalrelid IS NULL
ORDER BY c.relname
"""

_FOREIGN_KEYS = """
SELECT child.relname AS child, parent.relname AS parent, k.conname AS name, pg_get_constraintdef(k.oid) AS definition
FROM pg_constraint k
JOIN pg_class child ON child.oid = k.conrelid
JOIN pg_class parent ON parent.oid = k.confrelid
WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace
ORDER BY k.conname
"""

_USERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name IN ('fatura', 'fatura listen')
"""
