"""Spreading the tables over a Citus cluster: on PostgreSQL alone up to its calls, and for real where one is given.

`FATURA_TEST_CITUS_URL` names a database of its own on a coordinator, owned by a role that Row Level Security binds.
"""

import asyncio
import json
import os

import pytest

from fatura.store.migrations import distribute as spreading
from fatura.store.migrations.distribute import distribute
from fatura.store.migrations.runner import MigrationError, migrate
from tests.support.fatura_processes import environment, run
from tests.support.populated import connected
from tests.support.world import columns, open_world

CITUS_URL = os.environ.get("FATURA_TEST_CITUS_URL", "")

_STAND_IN = """
CREATE SCHEMA citus_calls;
CREATE TABLE citus_calls.call (place serial, said text);
CREATE TABLE pg_dist_partition (logicalrelid regclass);
CREATE TABLE pg_dist_node (isactive boolean, shouldhaveshards boolean, noderole text);
INSERT INTO pg_dist_node VALUES (true, true, 'primary');
CREATE FUNCTION create_distributed_table(name regclass, by text, colocate_with text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO citus_calls.call (said) VALUES (name::text || ' by ' || by || ' beside ' || colocate_with);
    INSERT INTO pg_dist_partition VALUES (name)
$$;
CREATE FUNCTION truncate_local_data_after_distributing_table(name regclass) RETURNS void LANGUAGE sql AS ''
"""
"""What Citus has, recording what it is asked for: the catalog, the order and the statements are tried, Citus is not."""
_SAID = "SELECT said FROM citus_calls.call ORDER BY place"
_WALLS = """
SELECT (SELECT count(*) FROM pg_class WHERE relrowsecurity AND relforcerowsecurity),
    (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal),
    (SELECT string_agg(k.conname || pg_get_constraintdef(k.oid), ',' ORDER BY k.conname) FROM pg_constraint k
        WHERE k.contype = 'f')
"""


@pytest.fixture
async def stand_in(database_url: str, monkeypatch: pytest.MonkeyPatch):
    """A database that answers like Citus when it is asked whether it is one."""
    async with connected(database_url) as connection:
        await connection.execute(_STAND_IN)
    monkeypatch.setattr(spreading, "_HAS_CITUS", "SELECT true")
    monkeypatch.setattr(spreading, "_HAND_SETTINGS_ON", "SELECT")  # settings that only Citus knows
    return database_url


async def test_every_table_is_spread_beside_its_account(stand_in: str):
    """Parents first, all walls stand afterwards, and a second run has nothing to do. [D-47]"""
    told: list[tuple[str, int]] = []
    async with connected(stand_in) as connection:
        walls = await connection.fetchrow(_WALLS)
        spread = await distribute(stand_in, tell=lambda name, percent: told.append((name, percent)))
        said = [row["said"] for row in await connection.fetch(_SAID)]
        assert said == [
            f"{name} by account_id beside {'none' if name == 'account' else 'account'}" for name in spread
        ]
        assert spread[0] == "account"
        assert len(spread) == len(set(spread)) > 25
        assert "schema_migration" not in spread
        assert told == [(name, 100 * done // len(spread)) for done, name in enumerate(spread)]
        assert await connection.fetchrow(_WALLS) == walls
        assert await distribute(stand_in) == []


async def test_a_table_of_a_later_version_follows(stand_in: str):
    """`--distribute` again spreads it, and only it."""
    await distribute(stand_in)
    async with connected(stand_in) as connection:
        await connection.execute(
            "CREATE TABLE later (account_id uuid NOT NULL, CONSTRAINT later_pk PRIMARY KEY (account_id), "
            "CONSTRAINT later_fk FOREIGN KEY (account_id) REFERENCES account (account_id))"
        )
    assert await distribute(stand_in) == ["later"]


async def test_nothing_is_spread_when_one_table_is_refused(stand_in: str):
    """All or none: a second run begins anew."""
    async with connected(stand_in) as connection:
        await connection.execute(
            "ALTER TABLE pg_dist_partition ADD CONSTRAINT no_plans CHECK (logicalrelid <> 'plan'::regclass)"
        )
        with pytest.raises(MigrationError, match="no_plans"):
            await distribute(stand_in)
        assert await connection.fetch(_SAID) == []
        await connection.execute("ALTER TABLE pg_dist_partition DROP CONSTRAINT no_plans")
    assert len(await distribute(stand_in)) > 25


async def test_it_refuses_beside_the_engine(stand_in: str):
    """A connection from before would not tell the nodes whose rows it means."""
    async with open_world(stand_in):
        with pytest.raises(MigrationError, match="stop the API and the workers"):
            await distribute(stand_in)


async def test_it_refuses_more_than_can_wait(stand_in: str):
    """Everybody waits while rows are copied."""
    with pytest.raises(MigrationError, match="run again with --at-most-gib 1"):
        await distribute(stand_in, at_most_gib=0)


async def test_the_command_names_the_next_step_without_citus(database_url: str):
    """Exit 1, one line, and what to do. [D-47]"""
    refused = await asyncio.to_thread(run, "migrate", "--distribute", env=environment(database_url))
    assert refused.returncode == 1
    assert "CREATE EXTENSION citus" in refused.stderr
    plain = await asyncio.to_thread(run, "migrate", "--json", env=environment(database_url))
    assert json.loads(plain.stdout) == {"applied": [], "distributed": []}


@pytest.mark.skipif(not CITUS_URL, reason="FATURA_TEST_CITUS_URL names no Citus cluster")
@pytest.mark.timeout(600)
async def test_a_merchant_is_billed_on_a_real_cluster():
    """From the subscription to two paid invoices, and every invariant holds."""
    await migrate(CITUS_URL)
    await distribute(CITUS_URL)
    assert await distribute(CITUS_URL) == []
    async with open_world(CITUS_URL) as world:
        await world.enroll(await world.plan())
        await world.advance(days=40)
        invoices = (await world.get("/v1/invoices")).json["data"]
        assert sorted(columns(invoices, "cycle", "status", "totalCents")) == [
            ("1", "paid", "9990"),
            ("2", "paid", "9990"),
        ]
