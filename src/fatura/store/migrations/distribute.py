"""Spreading the tables over the nodes of a Citus cluster, account by account; `store.migrations.runner` makes them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from fatura.store.migrations.files import MigrationError
from fatura.store.migrations.runner import connected, lock_migrations

ROOT = "account"
"""The table that all others lie beside: an account's rows of every table are on one node."""
AT_MOST_GIB = 10
"""How much may be copied to the nodes, while everybody waits, unless somebody says that more may."""
LOCK_SECONDS = 20

Tell = Callable[[str, int], None]
"""Called with each table, and with the percentage of tables done before it."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """One foreign key between two tables, as the catalog has it."""

    child: str
    parent: str
    name: str
    definition: str


async def distribute(
    url: str, *, at_most_gib: int = AT_MOST_GIB, tell: Tell = lambda _name, _percent: None
) -> list[str]:
    """Spread the tables that are not yet; all of them or none. Returns their names, parents first.

    Tables without an account stay where they are: `schema_migration`, which only the migrations need.
    Raises MigrationError.
    """
    async with connected(url) as connection:
        await lock_migrations(connection)
        await _refuse_without_citus(connection)
        held_bytes = {row["name"]: row["held_bytes"] for row in await connection.fetch(_WAITING)}
        keys = [ForeignKey(**row) for row in await connection.fetch(_FOREIGN_KEYS)]
        ordered, closing = order(held_bytes, keys)
        if ordered:
            await _refuse_while_in_use(connection)
            _refuse_much(sum(held_bytes.values()), at_most_gib=at_most_gib)
            try:
                async with connection.transaction():
                    await _spread(connection, ordered, closing, tell=tell)
            except asyncpg.LockNotAvailableError as error:
                raise MigrationError(
                    f"a table is in use and was not free within {LOCK_SECONDS} s: "
                    "end the transactions that pg_stat_activity shows, and run again"
                ) from error
    return ordered


def order(tables: Collection[str], keys: Sequence[ForeignKey]) -> tuple[list[str], list[ForeignKey]]:
    """Put parents before children; also return the keys that close a circle, which have to come after all tables.

    Parents that are not among the tables are there already.
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
    """Say whether a table is among the parents of another, and their parents."""
    above = {below}
    while found := {key.parent for key in keys if key.child in above} - above:
        above |= found
    return table in above


async def _refuse_without_citus(connection: Any) -> None:
    """Raise MigrationError unless this is the coordinator of a cluster with nodes, and the role one that it knows."""
    if not await connection.fetchval(_HAS_CITUS):
        raise MigrationError(
            "the database has no Citus: let an administrator run `CREATE EXTENSION citus` in it on every node, "
            "add the nodes by `citus_add_node`, and run again (docs/how-to/spread-over-machines.md)"
        )
    if not await connection.fetchval(_HAS_NODES):
        raise MigrationError(
            "Citus has no node to put tables on: add some by `citus_add_node`, and run again "
            "(docs/how-to/spread-over-machines.md)"
        )
    if await connection.fetchval(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    ):
        raise MigrationError(
            "Row Level Security does not bind this role, and the nodes do not follow when it steps down: let a role "
            "with LOGIN NOSUPERUSER NOBYPASSRLS own the tables, and connect as that one"
        )


async def _refuse_while_in_use(connection: Any) -> None:
    """Raise MigrationError while the engine runs."""
    if users := await connection.fetchval(_USERS):
        raise MigrationError(
            f"{users} connection(s) of Fatura are open, which would not see the rows on the nodes: "
            "stop the API and the workers, and run again"
        )


def _refuse_much(held_bytes: int, *, at_most_gib: int) -> None:
    """Raise MigrationError when the tables hold too much."""
    held_gib = -(-held_bytes // 2**30)
    if held_gib > at_most_gib:
        raise MigrationError(
            f"the tables hold {held_gib} GiB, and everybody waits while they are copied: "
            f"choose a quiet hour, and run again with --at-most-gib {held_gib}"
        )


async def _spread(
    connection: Any, tables: Sequence[str], closing: Sequence[ForeignKey], *, tell: Tell
) -> None:
    """Spread tables in their order, with their rows; keys that close a circle are put back in the end."""
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
    await connection.execute(_ALLOW_TRIGGERS)
    await connection.execute(_ONE_CONNECTION_A_NODE)
    for key in closing:
        await connection.execute(f"ALTER TABLE {key.child} DROP CONSTRAINT {key.name}")
    for done, name in enumerate(tables):
        tell(name, 100 * done // len(tables))
        await _spread_table(connection, name)
    for key in closing:
        await connection.execute(f"ALTER TABLE {key.child} ADD CONSTRAINT {key.name} {key.definition}")
    for name in reversed(tables):
        await connection.execute(_DROP_LOCAL_ROWS, name)
    await connection.execute(_HAND_SETTINGS_ON)


async def _spread_table(connection: Any, name: str) -> None:
    """Spread one table; its rows arrive as they are, past policies and the triggers that watch new ones."""
    triggers = await connection.fetch(_INSERT_TRIGGERS, name)
    await connection.execute(f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY")
    for trigger in triggers:
        await connection.execute(f"DROP TRIGGER {trigger['name']} ON {name}")
    await connection.execute(_SPREAD, name, "none" if name == ROOT else ROOT)
    for trigger in triggers:
        await connection.execute(trigger["definition"])
    await connection.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")


_ALLOW_TRIGGERS = "SET LOCAL citus.enable_unsafe_triggers = on"  # ours look at their own row only
_ONE_CONNECTION_A_NODE = "SET LOCAL citus.multi_shard_modify_mode = 'sequential'"  # as foreign keys want it

_INSERT_TRIGGERS = """
SELECT t.tgname AS name, pg_get_triggerdef(t.oid) AS definition FROM pg_trigger t
WHERE t.tgrelid = $1::text::regclass AND NOT t.tgisinternal AND t.tgtype & 4 <> 0
"""

_SPREAD = "SELECT create_distributed_table($1::text::regclass, 'account_id', colocate_with => $2)"

_DROP_LOCAL_ROWS = "SELECT truncate_local_data_after_distributing_table($1::text::regclass)"

_HAND_SETTINGS_ON = """
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET citus.propagate_set_commands = local', current_database());
    EXECUTE format('ALTER DATABASE %I SET citus.enable_unsafe_triggers = on', current_database());
END $$
"""
"""The nodes hear each transaction's `app.account`; a later migration may make triggers."""

_HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

_HAS_NODES = """
SELECT EXISTS (SELECT FROM pg_dist_node WHERE isactive AND shouldhaveshards AND noderole = 'primary')
"""

_WAITING = """
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
