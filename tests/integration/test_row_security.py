"""Row Level Security, the second wall, as the engine uses it; table by table see tests/faults/constraints."""

from typing import LiteralString
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from fatura.store.db import DatabaseUnavailableError
from fatura.store.migrations.runner import migrate
from tests.support.populated import connected, populate, tables
from tests.support.world import World, open_world

DISCOVERED = {
    "account",
    "account_counter",
    "subscription",
    "invoice",
    "product_mirror",
    "price_pull",
    "pricing_attempt",
    "late_charge_check",
    "webhook",
    "delivery",
    "test_clock",
    "idempotency_key",
}
"""What finding out which accounts have due work may read over all of them."""


def as_superuser(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.replace("fatura@", "postgres@")))


async def counts(connection, condition: str = "") -> dict[str, int]:
    """Return how many rows a query sees in each table."""
    return {
        table: await connection.fetchval(f"SELECT count(*) FROM {table} {condition}")  # noqa: S608 - our tables
        for table in await tables(connection)
    }


async def changed(connection, condition: str = "") -> set[str]:
    """Try to change and delete every row of every table; return the tables where any was found."""
    found: set[str] = set()
    for table in await tables(connection):
        for attempt in ("UPDATE TABLE SET account_id = account_id", "DELETE FROM TABLE"):
            if not (await connection.execute(f"{attempt.replace('TABLE', table)} {condition}")).endswith(
                " 0"
            ):
                found.add(table)
    return found


async def rows_by_table(connection) -> dict[str, str]:
    """Return the newest row of every table as JSON; an invoice that was just born is the newest."""
    return {
        table: await connection.fetchval(f"SELECT to_jsonb(x) FROM {table} x ORDER BY x DESC LIMIT 1")  # noqa: S608 - our tables
        for table in await tables(connection)
    }


async def refused_inserts(connection, samples: dict[str, str]) -> set[str]:
    """Try to add a row to each table; return those where Row Level Security refused it."""
    refused: set[str] = set()
    for table, sample in samples.items():
        insert = "INSERT INTO TABLE SELECT r.* FROM jsonb_populate_record(NULL::TABLE, $1::jsonb) AS r"
        try:
            await connection.execute(insert.replace("TABLE", table), sample)
        except asyncpg.InsufficientPrivilegeError:
            refused.add(table)
    return refused


async def test_nothing_is_seen_beside_the_walls(world: World):
    """Nothing shows tables' rows without their walls: views run as their owner, functions may. [spec 5.2]"""
    async with connected(world.database_url) as connection:
        beside = await connection.fetch(
            """
            SELECT c.relname AS name FROM pg_class c
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind NOT IN ('r', 'i')
            UNION ALL
            SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef
            """
        )
        assert [row["name"] for row in beside] == []
        every = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        assert {row["relname"] for row in every} - set(await tables(connection)) == {"schema_migration"}


async def test_discovery_reads_what_it_must_and_writes_nothing(world: World):
    """Looking over all accounts sees a few tables and changes none. [spec 5.2]"""
    await populate(world)
    await populate(await world.another())
    async with connected(world.database_url, world.account_id) as connection:
        samples = await rows_by_table(connection)
    async with connected(world.database_url) as connection:
        await connection.execute("SET app.discover = 'on'")
        seen = await counts(connection)
        assert {table for table, count in seen.items() if count} == DISCOVERED
        assert seen["account"] == 2
        assert await changed(connection) == set()
        assert await refused_inserts(connection, samples) == set(samples)


async def test_every_table_is_walled(world: World):
    """Row Level Security is on in every table, and binds its owner too. [spec 5.2]"""
    async with connected(world.database_url) as connection:
        walled = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relrowsecurity AND relforcerowsecurity"
        )
        assert {row["relname"] for row in walled} == set(await tables(connection))


FORGETFUL: LiteralString = "SELECT a.account_id FROM account a WHERE $1::uuid IS NOT NULL"
"""Has the parameter that every statement has, and forgets to compare it."""


async def test_a_superuser_steps_down(database_url: str):
    """On a superuser's URL every transaction takes on a role that Row Level Security binds. [spec 5.2]"""
    url = as_superuser(database_url)
    await migrate(url)
    async with open_world(url) as world:
        other = await world.another()
        await populate(world)
        async with world.deps.db.transaction(world.account_id) as tx:
            assert (
                await tx.fetchval("SELECT current_user FROM (VALUES ($1::uuid)) AS forgotten") == "fatura_app"
            )
            assert [row["account_id"] for row in await tx.fetch(FORGETFUL)] == [world.account_id]
        async with world.deps.db.discovery() as look:
            assert (await look.fetch("SELECT current_user AS role"))[0]["role"] == "fatura_app"
            found = {row["account_id"] for row in await look.fetch("SELECT a.account_id FROM account a")}
            assert found == {world.account_id, other.account_id}
            assert await look.fetch("SELECT p.product_id FROM product p") == []
        assert await world.broken() == []


async def test_the_engines_transaction(world: World):
    """A transaction is one account's; a statement in it that forgets the account sees no other. [spec 5.2]"""
    other = await world.another()
    for account_id in (world.account_id, other.account_id):
        async with world.deps.db.transaction(account_id) as tx:
            assert [row["account_id"] for row in await tx.fetch(FORGETFUL)] == [account_id]
    with pytest.raises(DatabaseUnavailableError, match="ReadOnlySQLTransactionError"):
        async with world.deps.db.discovery() as look:
            await look.fetch("UPDATE account SET name = 'x'")
