"""When workers and the test clock treat a delivery as due, and when one delivery delays another."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from fatura.store import due_times
from fatura.store.accounts import accounts
from fatura.usecases import due_accounts
from fatura.usecases.transaction import LaneName, load_account, open_work
from fatura.views.samples import events
from fatura.workers.loop import Loop
from tests.support.push_steps import deliveries, emit, redeliver, register, skip, webhook
from tests.support.receiver import OK, Received, Receiver, Reply, always, open_receiver
from tests.support.world import LANE, World, eventually


async def next_due_at(world: World) -> datetime | None:
    """Return the next instant at which an advance of the test clock would stop for work other than a sweep."""
    async with world.deps.db.transaction(world.account_id) as tx:
        due_at = await due_times.due_by_lane(tx)
    return min((at for lane, at in due_at.items() if lane != "sweep"), default=None)


async def is_found(world: World) -> bool:
    """Return whether discovery finds a due delivery or probe of the account."""
    lanes = (LaneName.PUSH, LaneName.PROBE)
    found = [each for lane in lanes for each in await due_accounts.of(lane)(world.deps)]
    return world.account_id in [each.account_id for each in found]


async def now_of(world: World) -> datetime:
    return (await load_account(world.deps, world.account_id)).now(world.deps.clock())


async def test_the_clock_stops_where_a_delivery_is_due(world: World, receiver: Receiver) -> None:
    """The clock does not stop for an event that waits for an earlier event of its invoice. [D-45, D-39 order]"""
    await emit(world, 1)
    assert (await next_due_at(world), await is_found(world)) == (None, False)  # the account has no webhook
    await register(world, receiver)
    assert (await next_due_at(world), await is_found(world)) == (None, False)  # event 1 predates the webhook
    await emit(world, 2, invoices=1)
    told_at = await next_due_at(world)
    assert told_at is not None
    assert told_at <= await now_of(world)
    assert await is_found(world)

    receiver.answer = always(500)
    for _ in range(3):
        await world.run("push")
        await _stops_at(world, sequence=2)
    receiver.answer = always(410)
    await world.run("push")
    assert not (await webhook(world))["enabled"]
    assert (await next_due_at(world), await is_found(world)) == (None, False)


async def test_an_event_behind_a_delayed_one_is_not_due(world: World, receiver: Receiver) -> None:
    """[D-45, D-39 order]"""
    await register(world, receiver)
    receiver.answer = lambda each: Reply(500 if each.sequence == 1 else 200)
    await emit(world, 2, invoices=1)
    await world.run("push")
    await skip(world, timedelta(seconds=6))
    await world.run("push")
    await emit(world, 1)
    await skip(world, timedelta(seconds=30))
    await world.run("push")

    assert receiver.sequences.count(3) == 1
    assert (await world.sql("SELECT failures FROM webhook"))[0]["failures"] == 0
    await _stops_at(world, sequence=1)


async def _stops_at(world: World, *, sequence: int) -> None:
    """Check that the clock stops at the next attempt of the endpoint or of the event, whichever is later.

    Then move the clock to that instant.
    """
    (row,) = await world.sql(
        "SELECT greatest(w.next_attempt_at, d.next_attempt_at) AS at FROM webhook w, delivery d"
        " WHERE d.sequence = $2 AND w.account_id = $1",
        world.account_id,
        sequence,
    )
    assert (await next_due_at(world), await is_found(world)) == (row["at"], False)
    assert row["at"] > await now_of(world)
    await skip(world, row["at"] - await now_of(world) + timedelta(milliseconds=5))
    assert await is_found(world)


async def test_workers_skip_an_account_whose_clock_advances(world: World, receiver: Receiver) -> None:
    """[D-45]"""
    await register(world, receiver)
    await emit(world, 1)
    await world.sql(
        "UPDATE test_clock SET status = 'advancing', target_at = now() WHERE account_id = $1",
        world.account_id,
    )
    assert not await is_found(world)


async def test_new_events_notify_the_lane(world: World) -> None:
    """[D-39 redeliver]"""
    notified: list[str] = []
    deps = replace(world.deps, notify=notified.append)
    async with open_work(deps, await load_account(world.deps, world.account_id)) as work:
        work.emit("webhook.disabled", events.DATA["webhook.disabled"])
        assert notified == []
    assert notified == ["push"]


async def test_a_redelivery_does_not_wait_for_the_next_probe(world: World, receiver: Receiver) -> None:
    """[D-39 redeliver]"""
    await register(world, receiver)
    receiver.answer = always(503, Retry_After="80000")
    await emit(world, 1)
    await world.run("push")
    receiver.answer = always(200)
    await redeliver(world, 1)

    assert await world.run("push") == 1
    assert (await deliveries(world, 1))["status"] == "delivered"


def after(released: asyncio.Event) -> Callable[[Received], Awaitable[Reply]]:
    """Return a function for `Receiver.answer` that answers 200 as soon as `released` is set."""

    async def answer(_: Received) -> Reply:
        await released.wait()
        return OK

    return answer


async def test_an_endpoint_that_hangs_delays_no_other_account(world: World, receiver: Receiver) -> None:
    """[D-39 fair]"""
    released, stop = asyncio.Event(), asyncio.Event()
    receiver.answer = after(released)
    await register(world, receiver)
    await emit(world, 300)
    other = await world.another()
    async with open_receiver() as quick:
        await register(other, quick)
        loop = Loop(world.deps, [LANE["push"]])
        running = asyncio.create_task(loop.run(stop))
        await eventually(lambda: len(receiver.received) >= 1, seconds=5)
        for count in range(1, 4):
            await other.enroll(await other.plan())
            loop.notify("push")
            await eventually(lambda count=count: len(quick.received) >= count, seconds=5)
        assert len(receiver.received) == 1
        released.set()
        await eventually(lambda: len(receiver.received) >= 300, seconds=10)
        stop.set()
        loop.notify("push")
        await running
    assert await world.broken() == []


async def test_many_hanging_endpoints_delay_no_other_account(world: World, receiver: Receiver) -> None:
    """[D-39 fair]"""
    released, stop = asyncio.Event(), asyncio.Event()
    receiver.answer = always(500)
    herd = [await world.another() for _ in range(6)]
    for each in herd:
        await register(each, receiver)
        await each.enroll(await each.plan())
    await world.run("push")
    for each in herd:
        account = await load_account(world.deps, each.account_id)
        async with world.deps.db.transaction(each.account_id) as tx:
            await accounts.set_clock_offset(tx, account.clock_offset + timedelta(seconds=6))
    receiver.answer = after(released)
    async with open_receiver() as quick:
        await register(world, quick)
        known = len(receiver.received)
        loop = Loop(world.deps, [replace(LANE[name], batches_at_once=4) for name in ("push", "probe")])
        running = asyncio.create_task(loop.run(stop))
        await eventually(lambda: len(receiver.received) >= known + 4, seconds=5)
        await world.enroll(await world.plan())
        loop.notify("push")
        await eventually(lambda: len(quick.received) >= 1, seconds=5)
        assert len(receiver.received) == known + 4
        released.set()
        stop.set()
        loop.notify("push")
        await running


async def test_endpoints_that_hang_delay_no_other_clock(world: World, receiver: Receiver) -> None:
    """[D-45, D-39 fair]"""
    released, stop = asyncio.Event(), asyncio.Event()
    receiver.answer = after(released)
    hanging = [await world.another() for _ in range(6)]
    for each in hanging:
        await register(each, receiver)
        await each.enroll(await each.plan())
    loop = Loop(world.deps, [LANE["test_clock"]])
    running = asyncio.create_task(loop.run(stop))
    advancing = [asyncio.create_task(each.post("/v1/test-clock/advance", {"days": 1})) for each in hanging]
    await eventually(lambda: len(receiver.received) >= 4, seconds=4)

    try:
        async with asyncio.timeout(4):
            answer = await world.post("/v1/test-clock/advance", {"days": 1})
        assert answer.json["status"] == "ready"
        assert not any(each.done() for each in advancing)
    finally:
        released.set()
        assert [(await each).json["status"] for each in advancing] == ["ready"] * len(hanging)
        stop.set()
        loop.notify("test_clock")
        await running
