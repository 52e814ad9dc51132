"""Query plans of a move between connections: PostgreSQL finds each skipped subscription by an index (D-59)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest_asyncio

from fatura.store.db import connect
from fatura.store.subscriptions import connection_moves
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction, load_account
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.sandbox_steps import connection_id
from tests.support.world import Json, World

SKIPPED = 600


@pytest_asyncio.fixture
async def explaining(world: World) -> AsyncIterator[Deps]:
    db = await connect(world.database_url, max_connections=2, connection_class=Explaining)
    yield replace(world.deps, db=db)
    await db.close()


async def end(work: Work, from_id: UUID) -> bool:
    of = await connection_moves.newest_from(work.tx, from_id)
    assert of is not None
    assert not await connection_moves.lock_subscriptions(work.tx, replace(of, visited_to=None), limit=500)
    return await connection_moves.lock_for_end(work.tx, of)


def touched(plan: Json) -> int:
    """Return how many rows the steps of a plan have read or compared."""
    counts = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
    return sum(node["Actual Loops"] * sum(node.get(key, 0) for key in counts) for node in nodes(plan))


async def test_the_end_of_a_move_reads_each_skipped_subscription_a_few_times(
    world: World, explaining: Deps
) -> None:
    """The tables are not analyzed, because their statistics are also old during a real move. [D-59 batches]"""
    plan, old = await world.plan(), await connection_id(world)
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], SKIPPED)
    new = (await world.connect(methods=["card"]))["connectionId"]
    answer = await world.post(f"/v1/integration/gateways/{old}/move", {"toConnectionId": new})
    assert len(answer.json["skipped"]) == SKIPPED

    account = await load_account(world.deps, world.account_id)
    PLANS.clear()
    assert await in_transaction(explaining, account, end, UUID(old))

    assert max(map(touched, PLANS)) < 10 * SKIPPED
