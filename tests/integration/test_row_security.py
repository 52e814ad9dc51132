"""Row Level Security isolates accounts, with PostgreSQL's policies and with the policies for Citus.

tests/faults/constraints tries to violate each policy of every table.
"""

from typing import Any, LiteralString

import asyncpg
import pytest

from fatura.store.db import DatabaseUnavailableError
from fatura.store.migrations.runner import migrate
from tests.support.databases import as_superuser
from tests.support.populated import (
    columns_of_tables,
    connected,
    insert_of,
    populate,
    tables,
    with_plain_policies,
)
from tests.support.world import World, open_world

DISCOVERED = {
    "account",
    "account_counter",
    "connection_health",
    "connection_move",
    "connection_sweep",
    "erasure",
    "subscription",
    "invoice",
    "product_mirror",
    "propagation",
    "price_pull",
    "pricing_attempt",
    "late_charge_check",
    "poll_round",
    "refund_request",
    "unmatched_charge",
    "webhook",
    "delivery",
    "test_clock",
    "idempotency_key",
    "retention",
}
"""Tables in which discovery may read the rows of all accounts."""
_ACCOUNT = "NULLIF(current_setting('app.account'::text, true), ''::text)"
_DISCOVERY = "NULLIF((current_setting('app.discover'::text, true) = 'on'::text), false)"
POLICIES = {
    ("ALL", f'(account_id = ( SELECT ({_ACCOUNT})::uuid AS "nullif"))'),
    ("SELECT", f'(( SELECT {_DISCOVERY} AS "nullif") IS NOT NULL)'),
}
"""The commands and conditions of all policies, as PostgreSQL prints them."""
_SAMPLE = "SELECT to_jsonb(x) FROM TABLE x ORDER BY x DESC LIMIT 1"
_WITHOUT_ACCOUNT: LiteralString = "SELECT a.account_id FROM account a WHERE $1::uuid IS NOT NULL"
"""A statement that takes the account as a parameter, but has no condition on account_id."""


@pytest.fixture(params=["policies of PostgreSQL", "policies for Citus"])
async def isolated(world: World, request: pytest.FixtureRequest) -> World:
    """An engine. Each test runs once with PostgreSQL's policies and once with the policies for Citus."""
    if request.param == "policies for Citus":
        await with_plain_policies(world.database_url)
    return world


async def counts(connection: Any) -> dict[str, int]:
    """Return how many rows of each table the connection sees."""
    return {
        table: await connection.fetchval(f"SELECT count(*) FROM {table}")  # noqa: S608 - our tables
        for table in await tables(connection)
    }


async def changed(connection: Any) -> set[str]:
    """Try to update and delete all rows of each table. Return the tables in which a statement found rows."""
    return {
        table
        for table in await tables(connection)
        for attempt in ("UPDATE TABLE SET account_id = account_id", "DELETE FROM TABLE")
        if not (await connection.execute(attempt.replace("TABLE", table))).endswith(" 0")
    }


async def newest_rows(connection: Any) -> dict[str, str]:
    """Return the newest row of each table as JSON.

    Tests insert copies of these rows. PostgreSQL accepts a copy of the newest invoice, because this invoice is `paid`
    and has no charge at the gateway.
    """
    return {
        table: await connection.fetchval(_SAMPLE.replace("TABLE", table))
        for table in await tables(connection)
    }


async def refused_inserts(connection: Any, samples: dict[str, str]) -> set[str]:
    """Insert each sample into its table. Return the tables in which Row Level Security refused the sample."""
    refused: set[str] = set()
    named = await columns_of_tables(connection)
    for table, sample in samples.items():
        try:
            await connection.execute(insert_of(table, named[table]), sample)
        except asyncpg.InsufficientPrivilegeError:
            refused.add(table)
    return refused


async def test_every_table_has_the_policies(world: World):
    """[spec 5.2]"""
    async with connected(world.database_url) as connection:
        secured = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relrowsecurity AND relforcerowsecurity"
        )
        policies = await connection.fetch("SELECT * FROM pg_policies")
        every = set(await tables(connection))
    assert {row["relname"] for row in secured} == every
    assert {(row["cmd"], row["qual"]) for row in policies} == POLICIES
    assert {row["tablename"] for row in policies if row["cmd"] == "ALL"} == every
    assert {row["tablename"] for row in policies if row["cmd"] == "SELECT"} == DISCOVERED
    assert len(policies) == len(every) + len(DISCOVERED)
    assert {(row["permissive"], *row["roles"], row["with_check"]) for row in policies} == {
        ("PERMISSIVE", "public", None)
    }


async def test_no_view_or_function_bypasses_the_policies(world: World):
    """A view or a SECURITY DEFINER function runs with its owner's rights and could bypass the policies. [spec 5.2]"""
    async with connected(world.database_url) as connection:
        bypassing = await connection.fetch(
            """
            SELECT c.relname AS name FROM pg_class c
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind NOT IN ('r', 'i')
            UNION ALL
            SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef
            """
        )
        assert [row["name"] for row in bypassing] == []
        every = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        assert {row["relname"] for row in every} - set(await tables(connection)) == {
            "schema_migration",
            "opened_account",
            "tag_key",
        }


@pytest.mark.faults
async def test_discovery_reads_its_tables_and_writes_nothing(isolated: World):
    """[spec 5.2]"""
    await populate(isolated)
    await populate(await isolated.another())
    async with connected(isolated.database_url, isolated.account_id) as connection:
        samples = await newest_rows(connection)
    async with connected(isolated.database_url) as connection:
        await connection.execute("SET app.discover = 'on'")
        seen = await counts(connection)
        assert {table for table, count in seen.items() if count} == DISCOVERED
        assert seen["account"] == 2
        assert await changed(connection) == set()
        assert await refused_inserts(connection, samples) == set(samples)
        await connection.execute("SET app.discover = 'off'")
        assert set((await counts(connection)).values()) == {0}


async def test_a_superuser_takes_a_role_that_the_policies_bind(database_url: str):
    """[spec 5.2]"""
    url = as_superuser(database_url)
    await migrate(url)
    async with open_world(url) as world:
        other = await world.another()
        await populate(world)
        async with world.deps.db.transaction(world.account_id) as tx:
            role = await tx.fetchval("SELECT current_user FROM (VALUES ($1::uuid)) AS account")
            assert role == "fatura_app"
            assert [row["account_id"] for row in await tx.fetch(_WITHOUT_ACCOUNT)] == [world.account_id]
        async with world.deps.db.discovery() as discovery:
            assert (await discovery.fetch("SELECT current_user AS role"))[0]["role"] == "fatura_app"
            found = {row["account_id"] for row in await discovery.fetch("SELECT a.account_id FROM account a")}
            assert found == {world.account_id, other.account_id}
            assert await discovery.fetch("SELECT p.product_id FROM product p") == []
        assert await world.broken() == []


async def test_a_statement_without_the_account_sees_no_other_account(isolated: World):
    """[spec 5.2]"""
    other = await isolated.another()
    for account_id in (isolated.account_id, other.account_id):
        async with isolated.deps.db.transaction(account_id) as tx:
            assert [row["account_id"] for row in await tx.fetch(_WITHOUT_ACCOUNT)] == [account_id]
    with pytest.raises(DatabaseUnavailableError, match="read-only transaction"):
        async with isolated.deps.db.discovery() as discovery:
            await discovery.fetch("UPDATE account SET name = 'x'")
