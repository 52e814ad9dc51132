"""An endpoint that is down gets one probe at a time. When it works again, it gets all events.

The events of each invoice arrive in order.
"""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from tests.support.push_steps import (
    deliveries,
    emit,
    fail_for_ten_minutes,
    orders,
    redeliver,
    register,
    webhook,
)
from tests.support.receiver import OK, Received, Reply, always, open_receiver
from tests.support.resource_use import no_free_descriptors
from tests.support.world import World

BACKLOG = 5000
INVOICES = 1200
DEAD_FOR = timedelta(hours=72)


async def slowly(_: Received) -> Reply:
    """Respond slowly, so that requests overlap."""
    await asyncio.sleep(0.002)
    return OK


async def to_next_probe(world: World) -> timedelta:
    """Move the test clock to the next probe, send the probe, and return the time by which the clock moved."""
    async with world.deps.db.transaction(world.account_id) as tx:
        wait = await tx.fetchval(
            "SELECT w.next_attempt_at - (now() + a.clock_offset) FROM webhook w, account a"
            " WHERE w.account_id = $1 AND a.account_id = $1"
        )
        wait = max(wait, timedelta())
        await tx.execute("UPDATE account SET clock_offset = clock_offset + $2 WHERE account_id = $1", wait)
    await world.run("push")
    return wait


@pytest.mark.faults
async def test_a_backlog_is_delivered_in_order_after_three_days_of_outage(world: World) -> None:
    """The delays between probes grow to ten minutes. [D-39, D-39 probes]"""
    async with open_receiver() as receiver:
        receiver.answer = always(503)
        await register(world, receiver)
        await emit(world, BACKLOG, invoices=INVOICES)
        dead_for, waits = timedelta(), list[timedelta]()
        await world.run("push")
        # Update the table's statistics, as autovacuum would during a real outage of three days.
        await world.sql("ANALYZE delivery")
        while dead_for < DEAD_FOR:
            waits.append(await to_next_probe(world))
            dead_for += waits[-1]

        assert receiver.most_at_once == 1
        assert len(receiver.received) == len(waits) + 1
        assert max(waits[:5]) < timedelta(minutes=11)
        assert min(waits[4:]) > timedelta(minutes=9)
        assert max(Counter(receiver.sequences).values()) <= 2
        receiver.forget()
        receiver.answer = slowly

        await to_next_probe(world)

        assert (await webhook(world))["enabled"]
        assert sorted(set(receiver.sequences)) == list(range(1, BACKLOG + 1))
        assert len(receiver.received) <= BACKLOG * 1.05
        assert receiver.most_at_once > 16
        for numbers in (await orders(world, receiver.received)).values():
            assert numbers == sorted(numbers)
        assert len(await orders(world, receiver.received)) == INVOICES
        rows = await world.sql(
            "SELECT count(*) AS events, count(delivered_at) AS delivered FROM delivery WHERE account_id = $1",
            world.account_id,
        )
        assert tuple(rows[0]) == (BACKLOG, BACKLOG)
        await world.run("sweep")  # run the nightly sweep, which was due during the outage
        assert await world.broken() == []


@pytest.mark.parametrize("asked", ["by a new event", "by redelivering", "by registering again"])
async def test_a_failure_after_a_month_without_events_does_not_disable(world: World, asked: str) -> None:
    """[D-39 disabling]"""
    async with open_receiver() as receiver:
        await register(world, receiver)
        receiver.answer = lambda each: Reply(500) if each.sequence == 1 else OK
        await emit(world, 2)
        await world.advance(days=30)
        assert (await deliveries(world, 1))["status"] == "given_up"
        receiver.answer = always(503)
        receiver.forget()

        await emit(world, 1)
        if asked == "by redelivering":
            await redeliver(world, 1)
        elif asked == "by registering again":
            await register(world, receiver)
        await world.run("push")

        assert len(receiver.received) == 1
        assert (await webhook(world))["enabled"]
        await world.advance(days=4)
        assert (await webhook(world))["enabled"]
        await fail_for_ten_minutes(world)
        await world.advance(days=2)
        assert not (await webhook(world))["enabled"]
        assert await world.broken() == []


async def test_missing_file_descriptors_are_no_failed_delivery(world: World) -> None:
    """[D-39]"""
    async with open_receiver() as receiver:
        await register(world, receiver)
        await emit(world, 3, invoices=3)
        with no_free_descriptors():
            await world.run("push")
        assert (await webhook(world))["disabledAt"] is None
        assert await world.sql("SELECT FROM webhook WHERE failures > 0") == []

        await world.run("push")

        assert [each.headers["x-service-delivery-attempt"] for each in receiver.received] == ["1"] * 3
