"""`fatura migrate --distribute` distributes the tables over the nodes of a Citus cluster.

Most tests use PostgreSQL with fake Citus functions. One test needs a real cluster: `FATURA_TEST_CITUS_URL`
names an empty database on the coordinator. The role in this URL must own the database, and Row Level Security
must apply to the role.
"""

import asyncio
import json
import os
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from fatura.store import pool
from fatura.store.db import connect
from fatura.store.migrations import distribute as distributing
from fatura.store.migrations.distribute import distribute
from fatura.store.migrations.runner import MigrationError, migrate
from tests.support.databases import as_owner, as_superuser
from tests.support.fatura_processes import environment, run
from tests.support.populated import connected
from tests.support.world import columns, open_world

CITUS_URL = os.environ.get("FATURA_TEST_CITUS_URL", "")

_FAKE_CITUS = """
CREATE SCHEMA citus_calls;
CREATE TABLE citus_calls.call (place serial, arguments text);
CREATE TABLE pg_dist_partition (logicalrelid regclass);
CREATE TABLE pg_dist_node (isactive boolean, shouldhaveshards boolean, noderole text);
INSERT INTO pg_dist_node VALUES (true, true, 'primary');
CREATE FUNCTION create_distributed_table(name regclass, by text, colocate_with text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO citus_calls.call (arguments) VALUES (name::text || ' by ' || by || ' with ' || colocate_with);
    INSERT INTO pg_dist_partition VALUES (name)
$$;
CREATE FUNCTION truncate_local_data_after_distributing_table(name regclass) RETURNS void LANGUAGE sql AS ''
"""
"""Replacements for the catalog tables and functions of Citus. They record which tables are distributed."""
_CALLS = "SELECT arguments FROM citus_calls.call ORDER BY place"
_CONSTRAINTS = """
SELECT (SELECT count(*) FROM pg_class WHERE relrowsecurity AND relforcerowsecurity),
    (SELECT count(*) FROM pg_policies),
    (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal),
    (SELECT string_agg(k.conname || pg_get_constraintdef(k.oid), ',' ORDER BY k.conname) FROM pg_constraint k
        WHERE k.contype = 'f')
"""


@pytest.fixture
async def coordinator(database_url: str, monkeypatch: pytest.MonkeyPatch):
    """A database in which simple tables and functions replace those of Citus."""
    owner_url = as_owner(database_url)
    async with connected(owner_url) as connection:
        await connection.execute(_FAKE_CITUS)
    monkeypatch.setattr(distributing, "_HAS_CITUS", "SELECT true")
    # The real statement changes settings that exist only with Citus.
    monkeypatch.setattr(distributing, "_DATABASE_SETTINGS", "SELECT")
    return owner_url


async def test_every_table_is_colocated_with_its_account(coordinator: str):
    """[D-47]"""
    progress: list[tuple[str, int]] = []
    async with connected(coordinator) as connection:
        constraints = await connection.fetchrow(_CONSTRAINTS)
        tables = await distribute(
            coordinator, progress=lambda name, percent: progress.append((name, percent))
        )
        calls = [row["arguments"] for row in await connection.fetch(_CALLS)]
        assert calls == [
            f"{name} by account_id with {'none' if name == 'account' else 'account'}" for name in tables
        ]
        assert tables[0] == "account"
        assert len(tables) == len(set(tables)) > 25
        assert "schema_migration" not in tables
        assert progress == [(name, 100 * done // len(tables)) for done, name in enumerate(tables)]
        assert await connection.fetchrow(_CONSTRAINTS) == constraints
        assert await distribute(coordinator) == []


async def test_policies_of_distributed_tables_have_no_sub_selects(coordinator: str):
    """Citus refuses sub-selects in policies."""
    await distribute(coordinator)
    async with connected(coordinator) as connection:
        conditions = await connection.fetchval("SELECT array_agg(DISTINCT qual) FROM pg_policies")
    assert len(conditions) == 2
    assert not any("SELECT" in condition for condition in conditions)


async def test_tables_of_a_later_version_are_distributed_by_the_next_run(coordinator: str):
    await distribute(coordinator)
    async with connected(coordinator) as connection:
        await connection.execute(
            "CREATE TABLE later (account_id uuid NOT NULL, CONSTRAINT later_pk PRIMARY KEY (account_id), "
            "CONSTRAINT later_fk FOREIGN KEY (account_id) REFERENCES account (account_id))"
        )
    assert await distribute(coordinator) == ["later"]


async def test_no_table_is_distributed_when_one_is_refused(coordinator: str):
    async with connected(coordinator) as connection:
        await connection.execute(
            "ALTER TABLE pg_dist_partition ADD CONSTRAINT no_plans CHECK (logicalrelid <> 'plan'::regclass)"
        )
        with pytest.raises(MigrationError, match="no_plans"):
            await distribute(coordinator)
        assert await connection.fetch(_CALLS) == []
        await connection.execute("ALTER TABLE pg_dist_partition DROP CONSTRAINT no_plans")
    assert len(await distribute(coordinator)) > 25


async def test_distribution_is_refused_while_the_engine_runs(coordinator: str):
    """Connections opened before the distribution would not pass `app.account` to the Citus nodes."""
    async with open_world(coordinator):
        with pytest.raises(MigrationError, match="stop the API and the workers"):
            await distribute(coordinator)


async def test_distribution_of_large_tables_needs_a_flag(coordinator: str):
    """Distribution locks the tables while it copies their rows, for a long time if they are large."""
    with pytest.raises(MigrationError, match="run again with --at-most-gib 1"):
        await distribute(coordinator, at_most_gib=0)


@pytest.mark.faults
async def test_the_command_names_the_next_step_without_citus(database_url: str):
    """[D-47]"""
    refused = await asyncio.to_thread(run, "migrate", "--distribute", env=environment(database_url))
    assert refused.returncode == 1
    assert "CREATE EXTENSION citus" in refused.stderr
    plain = await asyncio.to_thread(run, "migrate", "--json", env=environment(database_url))
    assert json.loads(plain.stdout) == {"applied": [], "distributed": []}


_MOVE = "CREATE FUNCTION citus_move_shard_placement(shard bigint) RETURNS void LANGUAGE sql AS ''"
_MOVING = (
    "alter_distributed_table",
    "alter_table_set_access_method",
    "citus_copy_shard_placement",
    "citus_drain_node",
    "citus_move_shard_placement",
    "citus_rebalance_start",
    "citus_schema_move",
    "citus_split_shard_by_split_points",
    "isolate_tenant_to_new_shard",
    "master_copy_shard_placement",
    "master_drain_node",
    "master_move_shard_placement",
    "rebalance_table_shards",
    "replicate_table_shards",
    "undistribute_table",
)
"""The functions of Citus that move, copy or rewrite shards. docs/how-to/spread-over-machines.md names the commonest."""
_MAY_MOVE = """
SELECT array_agg(p.proname::text ORDER BY p.proname) FROM pg_proc p
WHERE p.proname = ANY($1::text[]) AND has_function_privilege(p.oid, 'EXECUTE')
"""


async def test_distribution_is_refused_while_the_role_may_move_shards(coordinator: str):
    """Row Level Security hides all rows from this role, so a shard that the role moved would lose its rows."""
    async with connected(as_superuser(coordinator)) as administrator:
        await administrator.execute(_MOVE)
        with pytest.raises(MigrationError, match="would delete their rows") as refused:
            await distribute(coordinator)
        revoke = [line for line in str(refused.value).splitlines() if line.startswith("REVOKE")]
        assert len(revoke) == 1
        await administrator.execute(revoke[0])
    assert len(await distribute(coordinator)) > 25


async def test_distribution_revokes_the_functions_that_move_shards(coordinator: str):
    async with connected(coordinator) as connection:
        for name in _MOVING:
            await connection.execute(_MOVE.replace("citus_move_shard_placement", name))
        assert await connection.fetchval(_MAY_MOVE, _MOVING) == list(_MOVING)
        assert len(await distribute(coordinator)) > 25
        assert await connection.fetchval(_MAY_MOVE, _MOVING) is None


@pytest.mark.faults
async def test_the_command_prints_statements_that_an_administrator_can_copy(coordinator: str):
    """[D-47]"""
    async with connected(as_superuser(coordinator)) as connection:
        await connection.execute(_MOVE)
        await connection.execute("SET allow_system_table_mods = on")
        await connection.execute(
            "INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) "
            "VALUES (99999, 'citus', 10, 11, false, '13')"
        )
    refused = await asyncio.to_thread(run, "migrate", "--distribute", env=environment(coordinator))
    assert refused.returncode == 1
    revoke = "REVOKE EXECUTE ON FUNCTION citus_move_shard_placement(bigint) FROM PUBLIC, fatura_owner;"
    assert refused.stderr.splitlines()[-1] == revoke


async def test_settings_reach_the_nodes_of_a_cluster(coordinator: str, monkeypatch: pytest.MonkeyPatch):
    """Citus passes a setting to its nodes only if a transaction changes it with SET LOCAL."""
    monkeypatch.setattr(
        pool,
        "_SERVER",
        "SELECT true AS bound_by_row_security, true AS has_citus, 180006 AS version, false AS owns_tables",
    )
    sent: list[str] = []

    class Recording(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument] - not generic at run time
        async def execute(self, query: str, *args: Any, **options: Any) -> str:
            sent.append(query)
            return await super().execute(query, *args, **options)

        async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
            sent.append(query)
            return await super().fetchrow(query, *args, **options)

    db = await connect(coordinator, max_connections=2, connection_class=Recording)
    types = sent.index(pool.ARRAY_TYPES)
    assert sent[types - 2 : types + 2] == [
        "BEGIN;",
        "SET LOCAL citus.override_table_visibility = 'off'",
        pool.ARRAY_TYPES,
        "COMMIT;",
    ]
    sent.clear()
    async with db.transaction(uuid4()), db.discovery():
        pass
    await db.close()
    settings = [each for each in sent if "app." in each]
    assert len(settings) == 2
    assert all("SET LOCAL lock_timeout = '2500ms'" in each for each in settings)
    assert not any("force_generic_plan" in each or "BEGIN" in each for each in settings)


@pytest.mark.skipif(not CITUS_URL, reason="FATURA_TEST_CITUS_URL names no Citus cluster")
@pytest.mark.timeout(600)
async def test_a_subscription_is_billed_and_paid_on_a_real_cluster():
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
