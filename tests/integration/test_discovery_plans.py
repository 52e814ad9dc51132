"""Query plans with Row Level Security: discovery reads few rows, and policies do not change estimated row counts."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import LiteralString

import asyncpg
import pytest
import pytest_asyncio

from fatura.store.db import connect
from fatura.usecases.database_clock import DatabaseClock
from fatura.workers.lanes import LANES
from tests.conftest import fresh_database
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.populated import with_plain_policies
from tests.support.world import Json, World, open_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUBSCRIPTIONS = 2_000
IDLE_ACCOUNTS = 1_000
MAX_ROWS = 20
_OPEN_IDLE = (
    """
    INSERT INTO account (account_id, name, mode, currency, clock_offset, created_at)
    SELECT gen_random_uuid(), 'idle', 'sandbox', 'BRL', interval '0', now() FROM generate_series(1, $1)
    """,
    """
    INSERT INTO account_counter (account_id, last_sequence, webhook_enabled)
    SELECT account_id, 1, true FROM account a WHERE a.name = 'idle' AND $1 > 0
    """,
    """
    INSERT INTO webhook (account_id, url, created_at, fanned_out_to)
    SELECT account_id, 'http://127.0.0.1:1/', now(), 1 FROM account a WHERE a.name = 'idle' AND $1 > 0
    """,
    """
    INSERT INTO test_clock (account_id, status, processed)
    SELECT account_id, 'ready', '{}' FROM account a WHERE a.name = 'idle' AND $1 > 0
    """,
)
"""Statements that open accounts without due work. Each account has a webhook and no undelivered events."""
_INVOICES = "EXPLAIN (FORMAT JSON) SELECT FROM invoice v WHERE v.account_id = $1"


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["policies of PostgreSQL", "policies for Citus"]
)
async def billed(server_url: str, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """An account with SUBSCRIPTIONS invoices, among idle accounts.

    The tests run with the policies for PostgreSQL and with the policies for Citus.
    """
    async with fresh_database(server_url) as url, open_world(url) as world:
        if request.param == "policies for Citus":
            await with_plain_policies(url)
        plan = await world.plan(await world.product(100), await world.variable_product())
        await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], SUBSCRIPTIONS)
        assert await world.run("generation") == SUBSCRIPTIONS
        bypassing = await asyncpg.connect(url.replace("://fatura@", "://postgres@"))
        for statement in _OPEN_IDLE:
            await bypassing.execute(statement, IDLE_ACCOUNTS)
        await bypassing.execute("ANALYZE")
        await bypassing.close()
        yield world


async def test_discovery_reads_few_rows_while_nothing_is_due(billed: World) -> None:
    """[D-5, D-28]"""
    db = await connect(billed.database_url, max_connections=2, connection_class=Explaining)
    deps = replace(billed.deps, db=db, clock=DatabaseClock(lambda: billed.deps.clock() - timedelta(days=1)))
    try:
        for lane in LANES:
            PLANS.clear()
            assert await lane.due(deps) == [], lane.name
            read = sum(map(_rows, PLANS))
            assert PLANS, f"no plan of {lane.name} was recorded"
            assert read <= MAX_ROWS, f"{lane.name} read {read:.0f} rows: {json.dumps(PLANS, indent=1)}"
    finally:
        await db.close()


async def test_discovery_sorts_no_due_rows(billed: World) -> None:
    """A statement that sorts would read all due rows, although it needs only the first thousand. [D-5, D-28]"""
    db = await connect(billed.database_url, max_connections=2, connection_class=Explaining)
    deps = replace(
        billed.deps, db=db, clock=DatabaseClock(lambda: billed.deps.clock() + timedelta(days=8000))
    )
    PLANS.clear()
    try:
        for lane in LANES:
            await lane.due(deps)
        by_time = [each for each in PLANS if "account" not in _tables(each)]
        limits = [each for plan in by_time for each in nodes(plan) if each["Node Type"] == "Limit"]
        assert len(limits) >= len(LANES) - 1  # every lane but `test_clock` has such statements
        sorting = [each for each in limits if "Sort" in {below["Node Type"] for below in nodes(each)}]
        assert not sorting, json.dumps(sorting, indent=1)
    finally:
        await db.close()


@pytest.mark.parametrize("locking", ["", "FOR NO KEY UPDATE"])
async def test_policies_do_not_lower_the_estimated_rows(billed: World, locking: LiteralString) -> None:
    """With too low an estimate, PostgreSQL would sort all rows of an account to return one page. [D-16]"""
    async with billed.deps.db.transaction(billed.account_id) as tx:
        with_policies = await tx.fetchval(f"{_INVOICES} {locking}")
    bypassing = await asyncpg.connect(billed.database_url.replace("://fatura@", "://postgres@"))
    try:
        assert await bypassing.fetchval("SELECT rolbypassrls FROM pg_roles WHERE rolname = current_user")
        without_policies = await bypassing.fetchval(f"{_INVOICES} {locking}", billed.account_id)
    finally:
        await bypassing.close()
    expected = json.loads(without_policies)[0]["Plan"]["Plan Rows"]
    assert expected > 1, "too few rows to show a difference"
    assert json.loads(with_policies)[0]["Plan"]["Plan Rows"] >= expected / 2


def _tables(plan: Json) -> set[str]:
    return {each["Relation Name"] for each in nodes(plan) if "Relation Name" in each}


def _rows(plan: Json) -> float:
    """Return how many rows the scans of a query plan read, including the rows that a filter removed."""
    removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(
        (each["Actual Rows"] + sum(each.get(name, 0) for name in removed)) * each["Actual Loops"]
        for each in nodes(plan)
        if "Relation Name" in each
    )
