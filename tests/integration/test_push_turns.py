"""Pushes that wait behind another of their invoice: looks pass them by, and each is sent when its turn comes."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.support.push_steps import emit, orders, redeliver, register, skip
from tests.support.receiver import Receiver, Reply, always, open_receiver
from tests.support.world import World

READY = """
    SELECT sequence FROM delivery
    WHERE account_id = $1 AND next_attempt_at IS NOT NULL AND waits IS NOT TRUE ORDER BY sequence
"""
OLD_FAN_OUT = """
    WITH taken AS (
        INSERT INTO delivery (account_id, sequence, ordered_by, next_attempt_at)
        SELECT $1, e.sequence, e.invoice_id, now() FROM event e
        WHERE e.account_id = $1 AND e.sequence > (SELECT fanned_out_to FROM webhook WHERE account_id = $1)
        RETURNING sequence
    )
    UPDATE webhook SET fanned_out_to = (SELECT max(sequence) FROM taken)
    WHERE account_id = $1 AND EXISTS (SELECT FROM taken)
"""
OLD_DELIVER = """
    WITH sent AS (
        UPDATE delivery d SET attempts = d.attempts + 1, next_attempt_at = NULL, delivered_at = now() + a.clock_offset
        FROM account a WHERE a.account_id = $1 AND d.account_id = $1 AND d.next_attempt_at IS NOT NULL
            AND d.sequence = (
                SELECT min(b.sequence) FROM delivery b
                WHERE b.account_id = $1 AND b.ordered_by = $2 AND b.next_attempt_at IS NOT NULL
            )
        RETURNING d.sequence, d.attempts
    )
    INSERT INTO delivery_attempt (account_id, sequence, attempt, url, outcome, latency_ms, created_at)
    SELECT $1, sequence, attempts, 'http://127.0.0.1/', 'delivered', 1, now() FROM sent RETURNING sequence
"""
"""What a version from before the column `waits` says; it may run beside this one."""


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A merchant's endpoint."""
    async with open_receiver() as opened:
        yield opened


async def ready(world: World) -> list[int]:
    """Return the numbers of the open events that a look for work reads."""
    return [row["sequence"] for row in await world.sql(READY, world.account_id)]


async def test_looks_pass_by_what_waits(world: World, receiver: Receiver) -> None:
    """One poisonous event has 300 behind it: only it is read, and when it gets through, they follow. [D-39 order]"""
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


async def test_a_given_up_event_passes_its_turn_on(world: World, receiver: Receiver) -> None:
    """Though a person asks for it again before anybody has looked for the next one. [D-39 redeliver]"""
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


@pytest.mark.parametrize("seed", range(4))
async def test_beside_a_version_that_does_not_know(world: World, receiver: Receiver, seed: int) -> None:
    """It takes events up and delivers some, all mixed with ours: none is lost, none overtakes. [D-39 order]"""
    chance = random.Random(seed)  # noqa: S311 - a test's choice
    receiver.answer = lambda _: Reply(chance.choice((200, 200, 500)))
    await register(world, receiver)
    old: list[int] = []
    for _ in range(30):
        await emit(world, chance.randint(1, 6), invoices=2)
        match chance.randrange(4):
            case 0:
                await world.sql(OLD_FAN_OUT, world.account_id)
            case 1:
                invoices = await world.sql("SELECT DISTINCT invoice_id FROM event ORDER BY 1")
                one = chance.choice(invoices)["invoice_id"]
                old += [row["sequence"] for row in await world.sql(OLD_DELIVER, world.account_id, one)]
            case _:
                await world.run("push")
        await skip(world, timedelta(seconds=chance.choice((1, 40, 4000))))
    receiver.answer = always(200)
    await skip(world, timedelta(days=2))
    await world.run("push")

    (told,) = await world.sql("SELECT last_sequence FROM account_counter")
    assert sorted({*receiver.sequences, *old}) == list(range(1, told["last_sequence"] + 1))
    assert not await world.sql("SELECT FROM delivery WHERE next_attempt_at IS NOT NULL OR waits IS NOT NULL")
    assert await world.broken() == []
