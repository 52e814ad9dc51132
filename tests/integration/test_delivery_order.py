"""Claims skip deliveries that wait for an earlier delivery of their invoice."""

from datetime import timedelta

import pytest

from tests.support.push_steps import emit, orders, redeliver, register, skip
from tests.support.receiver import Receiver, Reply, always
from tests.support.world import World

READY = """
    SELECT sequence FROM delivery
    WHERE account_id = $1 AND next_attempt_at IS NOT NULL AND waits IS NOT TRUE ORDER BY sequence
"""


async def ready(world: World) -> list[int]:
    """Return the numbers of the undelivered events that do not wait for an earlier event."""
    return [row["sequence"] for row in await world.sql(READY, world.account_id)]


@pytest.mark.faults
async def test_claims_skip_events_that_wait(world: World, receiver: Receiver) -> None:
    """[D-39 order]"""
    await register(world, receiver)
    receiver.answer = lambda each: Reply(500 if each.sequence == 1 else 200)
    await emit(world, 301, invoices=1)
    await emit(world, 3)
    await world.run("push")
    await skip(world, timedelta(seconds=6))
    await world.run("push")
    assert await ready(world) == [1]

    receiver.answer = always(200)
    await skip(world, timedelta(days=1))
    await world.run("push")
    assert await ready(world) == []
    (in_order,) = (await orders(world, receiver.received)).values()
    assert in_order == list(range(1, 302))
    assert await world.broken() == []


async def test_a_given_up_event_unblocks_the_next(world: World, receiver: Receiver) -> None:
    """[D-39 redeliver]"""
    await register(world, receiver)
    receiver.answer = always(500)
    await emit(world, 2, invoices=1)
    await world.run("push")
    await world.sql(
        "UPDATE delivery SET next_attempt_at = NULL, given_up_at = now() WHERE account_id = $1 AND sequence = 1",
        world.account_id,
    )
    await redeliver(world, 1)
    assert await ready(world) == [1, 2]
    receiver.answer = always(200)
    await skip(world, timedelta(hours=1))
    await world.run("push")
    assert {1, 2} <= set(receiver.sequences)
    assert await world.broken() == []
