"""Only one worker at a time sends to an endpoint. A frozen worker's late result does not undo later changes."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from typing import cast
from uuid import uuid4

import pytest

from fatura.domain.account import Account
from fatura.domain.delivery import AttemptResult, Outcome
from fatura.outbound.http import DEADLINE_SECONDS
from fatura.store.db import Database
from fatura.usecases.database_clock import MAX_PUSH_SKEW, DatabaseClock
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import in_transaction, load_account
from fatura.usecases.webhooks import delivery
from fatura.usecases.webhooks.delivery import Round
from tests.faults.engine import OnClock
from tests.support.push_steps import deliveries, emit, register
from tests.support.receiver import Receiver, always, open_receiver
from tests.support.world import World

GOOD = AttemptResult(Outcome.DELIVERED, 200, 5, None, None, None)
BAD = AttemptResult(Outcome.HTTP_ERROR, 500, 5, "answered 500", None, None)
MINUTE = timedelta(minutes=1)


async def account_of(world: World) -> Account:
    return await load_account(world.deps, world.account_id)


async def claimed(world: World, deps: Deps | None = None) -> Round:
    """Claim the due deliveries, as a worker does before it dies or freezes."""
    found = await in_transaction(deps or world.deps, await account_of(world), delivery._claim, uuid4())
    assert found is not None
    return found


async def end_lease(world: World) -> None:
    """Expire the endpoint's lease by SQL. The test clock cannot expire it, because leases use real time."""
    await world.sql(
        "UPDATE webhook SET lease_until = now() - interval '1 second' WHERE account_id = $1", world.account_id
    )


async def record_late(world: World, frozen: Round, result: AttemptResult) -> None:
    """Record `result` for each delivery that the frozen worker had claimed."""
    results = {each.sequence: result for each in frozen.due}
    await in_transaction(world.deps, await account_of(world), delivery._record, frozen, results)


async def test_the_endpoint_of_a_dead_worker_is_claimed_again(world: World, receiver: Receiver) -> None:
    """[D-39 one worker]"""
    await register(world, receiver)
    await emit(world, 3)
    await claimed(world)

    assert await world.run("push") == 0
    await end_lease(world)
    assert await world.run("push") == 3

    assert sorted(receiver.sequences) == [1, 2, 3]
    assert await world.broken() == []


async def test_concurrent_workers_send_each_event_once(world: World, receiver: Receiver) -> None:
    """[D-39 one worker]"""
    await register(world, receiver)
    await emit(world, 200, invoices=20)
    account = await account_of(world)

    await asyncio.gather(*(delivery.deliver(world.deps, account) for _ in range(4)))
    await world.run("push")

    assert sorted(receiver.sequences) == list(range(1, 201))
    assert await world.broken() == []


async def test_workers_with_different_clocks_do_not_send_concurrently(
    world: World, receiver: Receiver
) -> None:
    """[D-39 one worker]"""
    clock = world.deps.clock
    until_ended = delivery.SEND_WITHIN + timedelta(seconds=DEADLINE_SECONDS)
    slow = replace(world.deps, clock=DatabaseClock(lambda: clock() - MAX_PUSH_SKEW))
    fast = replace(world.deps, clock=DatabaseClock(lambda: clock() + MAX_PUSH_SKEW))
    later = lambda: clock() + MAX_PUSH_SKEW + until_ended  # noqa: E731 - also the database's clock
    late = replace(world.deps, clock=DatabaseClock(later), db=cast("Database", OnClock(world.deps.db, later)))
    await register(world, receiver)
    await emit(world, 1)
    await claimed(world, slow)

    [ends_in] = await world.sql("SELECT extract(epoch FROM lease_until - now())::int FROM webhook")
    assert abs(ends_in[0] - delivery.LEASE.total_seconds()) < 5, "the lease is by the database's clock"
    assert [await delivery.deliver(deps, await account_of(world)) for deps in (fast, late)] == [0, 0]
    assert receiver.received == []


@pytest.mark.parametrize("now_answers", [200, 500])
async def test_a_late_failure_changes_nothing(world: World, receiver: Receiver, now_answers: int) -> None:
    """[D-39 one worker]"""
    await register(world, receiver)
    await emit(world, 1)
    frozen = await claimed(world)
    await end_lease(world)
    receiver.answer = always(now_answers)
    await world.run("push")
    before = await deliveries(world, 1), await world.sql("SELECT * FROM webhook")

    await record_late(world, frozen, BAD)

    assert (await deliveries(world, 1), await world.sql("SELECT * FROM webhook")) == before
    assert await world.broken() == []


@pytest.mark.parametrize("now_answers", [200, 500])
async def test_a_late_success_is_recorded(world: World, receiver: Receiver, now_answers: int) -> None:
    """[D-39 one worker]"""
    await register(world, receiver)
    await emit(world, 1)
    frozen = await claimed(world)
    await end_lease(world)
    receiver.answer = always(now_answers)
    await world.run("push")

    await record_late(world, frozen, GOOD)

    log = await deliveries(world, 1)
    assert (log["status"], [each["attempt"] for each in log["data"]]) == ("delivered", [1, 2])
    assert await world.broken() == []


async def test_a_late_success_does_not_change_the_time_of_delivery(world: World, receiver: Receiver) -> None:
    """While a worker is frozen, another worker delivers the claimed event and the next event. [D-39 order]"""
    await register(world, receiver)
    await emit(world, 2, invoices=1)
    frozen = await claimed(world)
    await end_lease(world)
    assert await world.run("push") == 2

    await record_late(world, frozen, GOOD)

    assert len((await deliveries(world, 1))["data"]) == 2
    assert await world.broken() == []


async def test_a_late_success_after_the_webhook_was_removed_is_ignored(
    world: World, receiver: Receiver
) -> None:
    """[D-39 one worker]"""
    await register(world, receiver)
    await emit(world, 1, invoices=1)
    frozen = await claimed(world)
    await world.delete("/v1/integration/webhook")
    assert (await deliveries(world, 1))["status"] == "given_up"
    await register(world, receiver)
    await emit(world, 1, invoices=1)
    await world.run("push")

    await record_late(world, frozen, GOOD)

    assert receiver.sequences == [2]
    assert (await deliveries(world, 1))["status"] == "delivered"
    assert await world.broken() == []


@pytest.mark.parametrize("clock", ["real time", "monotonic"])
async def test_a_worker_that_froze_after_its_claim_sends_nothing(
    world: World, receiver: Receiver, clock: str
) -> None:
    """[D-39 one worker]"""
    await register(world, receiver)
    await emit(world, 2)
    planned = await claimed(world)
    late = replace(planned, claimed_at=planned.claimed_at - MINUTE)
    if clock == "monotonic":
        late = replace(planned, send_before=time.monotonic())

    account = await load_account(world.deps, world.account_id)
    async with world.deps.merchants.session(account) as session:
        assert await delivery._call(world.deps, session, late) == {}

    assert receiver.received == []
    await end_lease(world)
    assert await world.run("push") == 2


async def test_a_changed_url_ends_the_lease(world: World, receiver: Receiver) -> None:
    """[D-39 webhook]"""
    await register(world, receiver)
    await emit(world, 1)
    frozen = await claimed(world)
    async with open_receiver() as moved:
        await register(world, moved)
        await record_late(world, frozen, BAD)
        await world.run("push")

        assert moved.sequences == [1]
        assert len((await deliveries(world, 1))["data"]) == 1
