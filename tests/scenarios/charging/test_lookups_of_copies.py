"""An issuance look-up finds several charges of one attempt, and the invoice adopts the best of them (D-181)."""

import pytest

from tests.support.sandbox_steps import charges, pass_time, queue_fault, read, ready_invoice
from tests.support.sweep_steps import double_silently, second_charge_events
from tests.support.world import Json, World


async def _two_charges(world: World) -> tuple[Json, str, str]:
    """Return an invoice whose answer was lost, and the ids of its two charges at the gateway, the older one first."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    return invoice, lost["chargeId"], await double_silently(world, {"gatewayInvoiceId": lost["chargeId"]})


@pytest.mark.parametrize("state", ["open", "paid"])
async def test_a_canceled_charge_does_not_hide_a_newer_one(world: World, state: str) -> None:
    """A person cancels one of two charges before the look-up. The invoice adopts the other. [D-181]"""
    invoice, canceled, other = await _two_charges(world)
    await world.post(f"/v1/sandbox/charges/{canceled}/cancel")
    if state == "paid":
        await world.post(f"/v1/sandbox/charges/{other}/pay")

    await pass_time(world, days=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued" if state == "open" else "paid", other)
    assert {each["chargeId"]: each["status"] for each in await charges(world)} == {
        canceled: "canceled",
        other: state,
    }
    assert await second_charge_events(world) == []
    assert await world.broken() == []


async def test_the_charge_with_the_right_amount_is_adopted(world: World) -> None:
    """The older charge has another amount. [D-181]"""
    invoice, older, newer = await _two_charges(world)
    await world.sql("UPDATE sandbox_charge SET amount_cents = 5000 WHERE charge_id = $1", older)

    await pass_time(world, days=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", newer)
    assert {each["chargeId"]: each["status"] for each in await charges(world)} == {
        older: "canceled",
        newer: "open",
    }
    assert len(await second_charge_events(world)) == 1
    assert await world.broken() == []


@pytest.mark.parametrize(("state", "cents"), [("open", 4000), ("paid", 9900)])
async def test_a_second_charge_with_a_payment_is_reported(world: World, state: str, cents: int) -> None:
    """The payer paid both charges before the look-up. No webhook says so. [D-181]"""
    invoice, older, newer = await _two_charges(world)
    await world.sql(
        """
        UPDATE sandbox_charge SET status = $1, entries = jsonb_build_array(jsonb_build_object('kind', 'payment',
            'reference', charge_id, 'amount_cents', $2::int, 'occurred_at', created_at))
        """,
        state,
        cents,
    )

    await pass_time(world, days=1)

    found = await read(world, invoice)
    assert (found["gatewayInvoiceId"], found["paidCents"]) == (older, 2 * cents)
    assert await second_charge_events(world) == [newer]
    assert await world.broken() == []
