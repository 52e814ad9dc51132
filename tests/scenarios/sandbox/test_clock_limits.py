"""A test clock has an end, an advance can be stopped, and advances do not delay other work."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from fatura.domain.account import MAX_CLOCK_OFFSET, Account
from fatura.domain.credentials import Mode
from fatura.store.db import connect
from fatura.store.sandbox import test_clock as stored_clock
from fatura.usecases.deps import Deps
from fatura.usecases.sandbox import test_clock
from fatura.usecases.transaction import load_account
from fatura.workers import lanes
from fatura.workers.loop import LaneRunner, run_batch
from tests.scenarios.billing.test_catch_up import sleep_until
from tests.support.sandbox_steps import now
from tests.support.world import LANE, NOW, World, eventually, world_on


async def test_a_clock_ends_thirty_years_ahead_of_real_time(world: World) -> None:
    """[D-214]"""
    end = datetime.now(UTC) + MAX_CLOCK_OFFSET
    await sleep_until(world, (end - timedelta(days=5)).isoformat())

    for body in ({"days": 6}, {"to": f"{end + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"}):
        refused = await world.post("/v1/test-clock/advance", body)
        assert (refused.status, refused.type) == (422, "engine.clock_limit")
        assert abs(datetime.fromisoformat(refused.json["meta"]["latest"]) - end) < timedelta(seconds=10)

    subscription = await world.enroll(await world.plan(periodMonths=12))
    await world.advance(days=4)
    assert [each["status"] for each in await world.invoices(subscription)] == ["paid"]


async def test_the_database_refuses_a_clock_that_is_further_ahead(world: World) -> None:
    """[D-214]"""
    with pytest.raises(asyncpg.CheckViolationError):
        await sleep_until(world, (datetime.now(UTC) + timedelta(days=11_000)).isoformat())


async def test_an_advance_can_be_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The advance waits for a call that hangs. [D-214]"""
    monkeypatch.setattr(test_clock, "POLL_SECONDS", 0.01)
    account = await load_account(world.deps, world.account_id)
    called, ended, before = asyncio.Event(), asyncio.Event(), await now(world)

    async def hangs(_deps: Deps, _account: Account) -> int:
        called.set()
        await ended.wait()
        return 1

    advance = asyncio.create_task(world.post("/v1/test-clock/advance", {"to": "2035-01-01"}))
    while not await LANE["test_clock"].due(world.deps):  # noqa: ASYNC110 - a request sets the target
        await asyncio.sleep(0.01)
    moving = asyncio.create_task(test_clock.advance_to_target(world.deps, account, {"hangs": hangs}))
    await called.wait()

    for _ in range(2):
        assert (await world.delete("/v1/test-clock/advance")).status == 204

    refused = await advance
    assert (refused.status, refused.type) == (409, "engine.clock_conflict")
    assert datetime.fromisoformat(refused.json["meta"]["now"]) - before < timedelta(minutes=1)
    ended.set()
    await moving
    clock = (await world.get("/v1/test-clock")).json
    assert clock["status"] == "ready"
    assert datetime.fromisoformat(clock["now"]) - before < timedelta(minutes=1)
    assert (await world.advance("2034-01-01"))["now"].startswith("2034-01-01")


@pytest.mark.parametrize(("limit", "value"), [("MAX_WORK", 3), ("RUN_SECONDS", 0.001)])
async def test_a_worker_advances_a_clock_in_small_portions(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    """[D-214]"""
    monkeypatch.setattr(test_clock, "WAIT_SECONDS", 0)
    monkeypatch.setattr(test_clock, limit, value)
    monkeypatch.setattr(lanes, "CLOCK_BATCH", 2)
    plan = await world.plan()
    for _ in range(5):
        await world.enroll(plan)
    assert (await world.post("/v1/test-clock/advance", {"days": 0})).status == 202

    portions: list[int] = []
    while accounts := await LANE["test_clock"].due(world.deps):
        await run_batch(world.deps, LANE["test_clock"], accounts[0])
        portions.append((await world.get("/v1/test-clock")).json["processed"].get("generation", 0))

    assert portions[0] == 2
    assert portions[-1] == 5
    assert len(portions) > 2


async def test_live_work_gets_a_connection_while_test_clocks_advance(database_url: str) -> None:
    """Without a limit, the five test clocks would use all four database connections of the process. [D-214]"""
    holding, may_end, stop = list[UUID](), asyncio.Event(), asyncio.Event()

    async def hold_transaction(deps: Deps, account: Account) -> int:
        async with deps.db.transaction(account.account_id):
            holding.append(account.account_id)
            await may_end.wait()
        return 0

    async with AsyncExitStack() as stack:
        db = await connect(database_url, max_connections=4)
        stack.push_async_callback(db.close)
        world = await stack.enter_async_context(world_on(db, database_url))
        live = await world.another(Mode.LIVE)
        for merchant in (world, *[await world.another() for _ in range(4)]):
            async with db.transaction(merchant.account_id) as tx:
                await stored_clock.start(tx, NOW + timedelta(days=9))
        runner = LaneRunner(world.deps, replace(LANE["test_clock"], run=hold_transaction))
        running = asyncio.create_task(runner.run(stop))
        await eventually(lambda: len(holding) == lanes.CLOCK_TRANSACTIONS)

        async with asyncio.timeout(2):
            await live.product()

        assert len(holding) == lanes.CLOCK_TRANSACTIONS
        stop.set()
        may_end.set()
        await running
