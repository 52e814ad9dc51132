"""The looks for due work read next to nothing while nothing is due, whatever there is."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString

import asyncpg
import pytest

from fatura.store.db import connect
from fatura.workers.lanes import LANES
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.world import Json, World

SUBSCRIPTIONS = 2_000
MOST_ROWS = 20
_EXPLAIN = "EXPLAIN (FORMAT JSON) SELECT FROM invoice v WHERE v.account_id = $1"
_PLANS: list[Json] = []


class Explaining(asyncpg.Connection):
    """Has every look explained, as it runs."""

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        """Explain a statement, then run it."""
        plan = await super().fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
        _PLANS.append(json.loads(plan[0][0])[0]["Plan"])
        return await super().fetch(query, *args, **options)


async def test_looks_read_next_to_nothing_while_nothing_is_due(world: World) -> None:
    """Behind Row Level Security an index is asked only with values, which a clock's offset is not. [D-5, D-28]"""
    plan = await world.plan(await world.product(100), await world.variable_product())
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], SUBSCRIPTIONS)
    assert await world.run("generation") == SUBSCRIPTIONS
    await world.sql("ANALYZE subscription, invoice, price_pull, event, account")
    db = await connect(world.database_url, max_connections=2, connection_class=Explaining)
    deps = replace(world.deps, db=db, clock=lambda: world.deps.clock() - timedelta(days=1))
    try:
        for lane in LANES:
            _PLANS.clear()
            assert await lane.due(deps) == [], lane.name
            read = sum(map(_rows, _PLANS))
            assert _PLANS, f"{lane.name} was not explained"
            assert read <= MOST_ROWS, f"{lane.name} read {read:.0f} rows: {json.dumps(_PLANS, indent=1)}"
    finally:
        await db.close()


@pytest.mark.parametrize("locking", ["", "FOR NO KEY UPDATE"])
async def test_row_level_security_is_no_filter_to_the_planner(world: World, locking: LiteralString) -> None:
    """Else it sorts all that an account has, to show a page of it, or to claim a batch. [D-16]"""
    plan = await world.plan(await world.product(100))
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], SUBSCRIPTIONS)
    assert await world.run("generation") == SUBSCRIPTIONS
    async with world.deps.db.transaction(world.account_id) as tx:
        behind = await tx.fetchval(f"{_EXPLAIN} {locking}")
    bypassing = await asyncpg.connect(world.database_url.replace("://fatura@", "://postgres@"))
    try:
        assert await bypassing.fetchval("SELECT rolbypassrls FROM pg_roles WHERE rolname = current_user")
        before = await bypassing.fetchval(f"{_EXPLAIN} {locking}", world.account_id)
    finally:
        await bypassing.close()
    expected = json.loads(before)[0]["Plan"]["Plan Rows"]
    assert expected > 1, "too few for a difference"
    assert json.loads(behind)[0]["Plan"]["Plan Rows"] >= expected / 2


def _rows(plan: Json) -> float:
    """Return how many rows the leaves of a plan read, those that a filter refused included."""
    below = sum(map(_rows, plan.get("Plans", [])))
    if "Relation Name" not in plan:
        return below
    read = (
        plan["Actual Rows"]
        + plan.get("Rows Removed by Filter", 0)
        + plan.get("Rows Removed by Index Recheck", 0)
    )
    return below + read * plan["Actual Loops"]
