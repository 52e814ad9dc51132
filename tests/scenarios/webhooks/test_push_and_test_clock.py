"""A test clock that passes days within seconds neither disables a webhook nor uses up its retries."""

import pytest

from tests.support.push_steps import deliveries, emit, fail_for_ten_minutes, register, webhook
from tests.support.receiver import Receiver, always
from tests.support.world import World


@pytest.mark.faults
async def test_a_receiver_that_is_down_during_an_advance_stays_enabled(
    world: World, receiver: Receiver
) -> None:
    """After the advance, the pending events are due at once and in order, with all attempts left. [D-65, D-250]"""
    await register(world, receiver)
    receiver.answer = always(503)
    await emit(world, 3, invoices=1)

    clock = await world.advance(days=30)

    assert clock["webhook"] == {"enabled": True, "delivered": 0, "failed": len(receiver.received)}
    assert len(receiver.received) < 100
    assert (await webhook(world))["disabledAt"] is None
    assert (await deliveries(world, 1))["nextAttemptAt"] <= clock["now"]

    receiver.forget()
    receiver.answer = always(200)
    await world.run("push")

    assert receiver.sequences == [1, 2, 3]
    assert (await world.get("/v1/test-clock")).json["webhook"]["delivered"] == 3
    assert await world.broken() == []


async def test_a_receiver_that_fails_on_both_clocks_is_disabled(world: World, receiver: Receiver) -> None:
    """[D-65, D-39 disabling]"""
    await register(world, receiver)
    receiver.answer = always(503)
    await emit(world, 1)
    await world.advance(days=9)
    await fail_for_ten_minutes(world)

    await world.run("push")

    assert not (await webhook(world))["enabled"]
    clock = await world.advance(days=1)
    assert clock["webhook"] == {"enabled": False, "delivered": 0, "failed": 0}
    assert await world.broken() == []


async def test_a_410_disables_during_an_advance(world: World, receiver: Receiver) -> None:
    """[D-65, D-39 gone]"""
    await register(world, receiver)
    receiver.answer = always(410)
    await emit(world, 1)
    clock = await world.advance(days=1)
    assert clock["webhook"] == {"enabled": False, "delivered": 0, "failed": 1}


async def test_each_advance_counts_its_own_pushes(world: World, receiver: Receiver) -> None:
    """Without a webhook, the answer has no counts. [D-65, D-45]"""
    assert "webhook" not in await world.advance(days=1)
    await register(world, receiver)
    await emit(world, 2)
    assert (await world.advance(days=1))["webhook"] == {"enabled": True, "delivered": 2, "failed": 0}
    await emit(world, 1)
    assert (await world.advance(days=1))["webhook"] == {"enabled": True, "delivered": 1, "failed": 0}


async def test_a_stopped_advance_makes_pending_events_due(world: World, receiver: Receiver) -> None:
    """[D-250, D-214]"""
    await register(world, receiver)
    receiver.answer = always(503)
    await emit(world, 1)
    await world.run("push")
    await world.sql(
        "UPDATE test_clock SET status = 'advancing', target_at = now() + interval '99 years' WHERE account_id = $1",
        world.account_id,
    )
    assert (await world.delete("/v1/test-clock/advance")).status == 204

    receiver.answer = always(200)
    await world.run("push")
    assert (await deliveries(world, 1))["status"] == "delivered"
