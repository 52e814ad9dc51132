"""Query plans of polls: a batch reads few invoices, however many are due or wait (D-35, D-55)."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from fatura.store import due_times, lateness
from fatura.store.db import connect
from fatura.store.discovery import discover_one_by_one
from fatura.usecases.deps import Deps
from fatura.usecases.reconciliation import poll_times
from fatura.usecases.transaction import Work, in_transaction, load_account
from tests.conftest import fresh_database
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.world import Json, World, open_world

T = TypeVar("T")
pytestmark = pytest.mark.asyncio(loop_scope="module")

INVOICES = 2_000
BATCH = 20
ISSUE = """
    UPDATE invoice SET status = CASE WHEN hashtext(invoice_id::text) % 2 = 0 THEN 'issued' ELSE 'overdue' END,
        gateway_invoice_id = invoice_id::text, issued_at = now(), charge_due_date = due_date, next_attempt_at = now()
    WHERE status = 'ready'
"""
MOVE = """
    UPDATE invoice SET connection_id = $1::text::uuid
    WHERE invoice_id IN (SELECT invoice_id FROM invoice ORDER BY invoice_id LIMIT $2)
"""
RESET = """
    UPDATE invoice SET polls_first = false, next_attempt_at = issued_at - CASE connection_id
        WHEN $1::text::uuid THEN interval '0' ELSE interval '1 day' END
"""
BACKLOGS = {
    "not named": "SELECT $1::text",
    "named": "UPDATE invoice SET polls_first = true WHERE connection_id <> $1::text::uuid",
    "put off": """
        UPDATE invoice SET polls_first = true, next_attempt_at = '2090-01-01' WHERE connection_id <> $1::text::uuid
    """,
    "budget spent": """
        UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '2 minutes'
        WHERE connection_id <> $1::text::uuid
    """,
}
"""Statements that change the backlog. The backlog is the invoices of all connections but `$1`, due for a day."""


class _UndoError(Exception):
    pass


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def billed(server_url: str) -> AsyncIterator[tuple[World, str]]:
    """An account with INVOICES invoices due for a poll, and the id of the connection that issued BATCH of them."""
    async with fresh_database(server_url) as url, open_world(url) as world:
        plan = await world.plan(await world.product(100))
        await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], INVOICES)
        await world.run("generation")
        other = (await world.connect())["connectionId"]
        owner = await owner_of(world)
        await owner.execute("SET session_replication_role = replica")
        await owner.execute(ISSUE)
        await owner.execute(MOVE, other, BATCH)
        await owner.close()
        yield world, other


async def owner_of(world: World) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(world.database_url.replace("://fatura@", "://postgres@"))


async def have_backlog(world: World, other: str, backlog: str) -> None:
    owner = await owner_of(world)
    await owner.execute("UPDATE connection_health SET polls_per_minute = NULL, polls_from = NULL")
    await owner.execute(RESET, other)
    await owner.execute(BACKLOGS[backlog], other)
    await owner.execute("VACUUM ANALYZE")
    await owner.close()


def read(plan: Json) -> float:
    """Return how many rows the scans of a plan have read."""
    removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(
        (each["Actual Rows"] + sum(each.get(name, 0) for name in removed)) * each["Actual Loops"]
        for each in nodes(plan)
        if "Relation Name" in each
    )


async def undone(deps: Deps, world: World, work: Callable[[Work], Awaitable[T]]) -> T:
    """Do `work` in a transaction that is rolled back, and return its result."""
    results: list[T] = []

    async def do(running: Work) -> None:
        results.append(await work(running))
        raise _UndoError

    with pytest.raises(_UndoError):
        await in_transaction(deps, await load_account(world.deps, world.account_id), do)
    return results[0]


async def lease(work: Work) -> Sequence[UUID]:
    return await poll_times.lease_due(work, limit=BATCH)


async def look_for_work(work: Work) -> None:
    """Read whether the account has due work, as each batch does, and when its next work is due."""
    await due_times.due_reconciliation(work.tx, now=work.now)
    await due_times.due_by_lane(work.tx)


@pytest.mark.parametrize("backlog", BACKLOGS)
async def test_a_batch_reads_few_invoices(billed: tuple[World, str], backlog: str) -> None:
    """The backlog of one connection does not delay the polls of another connection. [D-35 polling, D-55 budget]"""
    world, other = billed
    await have_backlog(world, other, backlog)
    db = await connect(world.database_url, max_connections=2, connection_class=Explaining)
    explained = replace(world.deps, db=db)
    for part in (look_for_work, lease):
        PLANS.clear()
        await undone(explained, world, part)
        assert PLANS
        assert sum(map(read, PLANS)) <= 8 * BATCH, json.dumps(PLANS, indent=1)
    await db.close()

    leased = set(await undone(world.deps, world, lease))
    assert len(leased) == BATCH
    of_other = await world.sql("SELECT invoice_id FROM invoice WHERE connection_id = $1::text::uuid", other)
    shared = backlog in {"not named", "named"}
    assert len(leased & {row["invoice_id"] for row in of_other}) == BATCH // (2 if shared else 1)


async def test_a_poll_beside_other_accounts_reads_few_invoices(billed: tuple[World, str]) -> None:
    """While many rows are due, discovery reads the accounts one by one. [D-5]"""
    world, other = billed
    await have_backlog(world, other, "put off")
    db = await connect(world.database_url, max_connections=2, connection_class=Explaining)
    async with db.discovery() as tx:
        PLANS.clear()
        found = await discover_one_by_one(
            tx, "reconciliation", account_ids=[world.account_id], real_now=world.deps.clock()
        )
        await lateness.discover_oldest(tx, real_now=world.deps.clock())
    await db.close()
    assert [account.account_id for account in found] == [world.account_id]
    assert len(PLANS) == 3
    assert sum(read(plan) for plan in PLANS) <= BATCH
