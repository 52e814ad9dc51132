"""One delivery that fails unexpectedly delays only the later events of its invoice (D-186).

`emit_five` emits five events. The events 2, 3 and 5 belong to one invoice. The events 1 and 4 belong to another.
"""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.captured_logs import captured_logs
from tests.support.push_steps import deliveries, emit, register
from tests.support.receiver import Receiver, always
from tests.support.refused_writes import refuse
from tests.support.sandbox_steps import pass_time
from tests.support.world import World

UNKNOWN = "invoice.unknown"
"""An event type that the engine does not know. The engine cannot build a message of this type."""
Step = Callable[[World], Awaitable[object]]


async def emit_five(world: World, *, third: str = "invoice.paid") -> None:
    await emit(world, 2, invoices=2)
    await emit(world, 1, invoices=1, type_=third)
    await emit(world, 2, invoices=2)


async def change_third(world: World, change: str) -> None:
    """Change the third event. PostgreSQL normally refuses this change."""
    await world.sql("ALTER TABLE event DISABLE TRIGGER event_kept")
    await world.sql(f"UPDATE event SET {change} WHERE sequence = 3")  # noqa: S608 - written here
    await world.sql("ALTER TABLE event ENABLE TRIGGER event_kept")


async def emit_unreadable(world: World) -> None:
    """Emit five events, and remove the data of the third event, so that the engine cannot send this event."""
    await emit_five(world)
    await world.sql("ALTER TABLE event ALTER COLUMN data DROP NOT NULL")
    await change_third(world, "data = NULL")


async def emit_unsendable(world: World) -> None:
    await emit_five(world, third=UNKNOWN)


async def mend_event(world: World) -> None:
    await change_third(world, """data = '{"n":1}', type = 'invoice.paid'""")


@pytest.mark.parametrize("break_third", [emit_unreadable, emit_unsendable])
async def test_a_delivery_that_cannot_be_sent_delays_no_other_invoice(
    world: World, receiver: Receiver, break_third: Step
) -> None:
    """[D-39 order, D-186]"""
    await register(world, receiver)
    await break_third(world)

    with captured_logs() as logs:
        await world.run("push")

    assert logs.getvalue().count("delivery.put_off") == 1
    assert "Traceback" in logs.getvalue()
    assert sorted(receiver.sequences) == [1, 2, 4]
    assert await world.sql("SELECT FROM webhook WHERE leased_by IS NOT NULL OR failures > 0") == []
    await mend_event(world)
    await pass_time(world, minutes=11)
    assert receiver.sequences[3:] == [3, 5]
    assert receiver.received[3].headers["x-service-delivery-attempt"] == "1"
    assert await world.broken() == []


async def test_a_delivery_that_cannot_be_recorded_delays_no_other_invoice(
    world: World, receiver: Receiver
) -> None:
    """If Fatura cannot record that the endpoint accepted an event, it sends the event again. [D-39 order, D-186]"""
    await register(world, receiver)
    await emit_five(world)
    await refuse(world, "delivery_attempt", "INSERT", "NEW.sequence = 3")

    with captured_logs() as logs:
        await world.run("push")

    assert logs.getvalue().count("delivery.put_off") == 1
    assert sorted(receiver.sequences) == [1, 2, 3, 4]
    statuses = [(await deliveries(world, sequence))["status"] for sequence in range(1, 6)]
    assert statuses == ["delivered", "delivered", "pending", "delivered", "pending"]
    await world.sql("DROP TRIGGER refuse ON delivery_attempt")
    await pass_time(world, minutes=11)
    assert receiver.sequences[4:] == [3, 5]
    assert await world.broken() == []


async def test_a_delivery_that_cannot_be_sent_does_not_stop_the_probes_of_the_endpoint(
    world: World, receiver: Receiver
) -> None:
    """[D-39 probes, D-186]"""
    await register(world, receiver)
    receiver.answer = always(500)
    await emit(world, 1)
    await world.run("push")
    await emit(world, 1, type_=UNKNOWN)
    receiver.answer = always(200)

    await pass_time(world, minutes=2)

    assert receiver.sequences == [1, 1]
    assert (await deliveries(world, 1))["status"] == "delivered"


async def test_many_faulty_deliveries_do_not_hide_the_others(world: World, receiver: Receiver) -> None:
    """There are more faulty deliveries than one round sends. [D-186]"""
    await register(world, receiver)
    await emit(world, 70, type_=UNKNOWN)
    await emit(world, 1)

    await world.run("push")

    assert receiver.sequences == [71]
