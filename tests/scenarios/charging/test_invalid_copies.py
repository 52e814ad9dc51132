"""An attempt has several charges, and the gateway's answers about one of them are invalid (D-50, D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

import pytest

from tests.support.sandbox_steps import believed_absent, charge_statuses, pass_time, pay_silently, read
from tests.support.sweep_steps import (
    NO_SWEEP,
    TRIPLE_ID,
    cancel_with_refund,
    double_silently,
    hide_payment,
    second_charge_events,
    show_payment,
    two_charges,
)
from tests.support.world import World


@pytest.mark.parametrize("has_sweep", [True, False])
@pytest.mark.parametrize("other_is", ["open", "canceled"])
async def test_a_paid_charge_that_is_invalid_for_minutes_is_adopted(
    world: World, other_is: str, *, has_sweep: bool
) -> None:
    """The gateway shows the state `paid` some minutes before it shows the payment. [D-50, D-181]"""
    invoice, other, paid = await two_charges(world)
    if other_is == "canceled":
        await world.post(f"/v1/sandbox/charges/{other}/cancel")
    await hide_payment(world, paid)
    if not has_sweep:
        await world.sql(NO_SWEEP)
    await pass_time(world, minutes=20)
    assert (await read(world, invoice))["status"] == "ready"

    await show_payment(world, paid)
    await pass_time(world, days=3)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", paid, 9990)
    assert await charge_statuses(world) == {other: "canceled", paid: "paid"}
    assert await second_charge_events(world) == ([other] if other_is == "open" else [])
    assert await world.broken() == []


async def test_a_paid_charge_that_is_invalid_for_hours_is_reported(world: World) -> None:
    """A paid charge is invalid. After an hour, the invoice adopts the other charge.

    Later, the gateway shows the payment of the first charge. [D-50, D-181]
    """
    invoice, valid, paid = await two_charges(world)
    await hide_payment(world, paid)
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=3)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("issued", valid, 0)

    await show_payment(world, paid)
    await pass_time(world, days=2)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", valid, 9990)
    assert await charge_statuses(world) == {valid: "canceled", paid: "paid"}
    assert await second_charge_events(world) == [paid]
    assert await world.broken() == []


@pytest.mark.parametrize("becomes", ["open", "paid"])
async def test_a_second_charge_that_is_invalid_at_the_last_look_up_is_found(
    world: World, becomes: str
) -> None:
    """The late look-up after 24 hours shows the second charge, which is invalid for some more minutes. [D-50, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    issued = await read(world, await believed_absent(world))
    own = issued["gatewayInvoiceId"]
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=23)
    second = await double_silently(world, issued)
    await hide_payment(world, second)
    await pass_time(world, hours=1, minutes=10)

    if becomes == "open":
        await world.sql("UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1", second)
    else:
        await show_payment(world, second)
    await pass_time(world, days=3)

    expected = {own: "open", second: "canceled"} if becomes == "open" else {own: "canceled", second: "paid"}
    assert await charge_statuses(world) == expected
    assert (await read(world, issued))["paidCents"] == (0 if becomes == "open" else 9990)
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []


async def test_an_invalid_copy_hides_no_valid_charge(world: World) -> None:
    """The payer paid one charge. The other charge is invalid. [D-50, D-181]"""
    invoice, paid, invalid = await two_charges(world)
    await pay_silently(world, paid)
    await cancel_with_refund(world, invalid)

    await pass_time(world, hours=8)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", paid, 9990)
    assert await second_charge_events(world) == []
    assert await world.broken() == []


async def test_an_invalid_copy_hides_no_second_charge_from_late_look_ups(world: World) -> None:
    """An invoice has three charges, and the third charge is invalid. The engine still cancels the second charge.

    After a day, the engine reports the third charge.
    [D-50, D-125]
    """
    await world.set_up_gateway(behaviour="never_pay")
    issued = await read(world, await believed_absent(world))
    second = await double_silently(world, issued)
    invalid = await double_silently(world, issued, charge_id=TRIPLE_ID)
    await cancel_with_refund(world, invalid)
    await world.sql(NO_SWEEP)

    await pass_time(world, days=2)
    assert await charge_statuses(world) == {
        issued["gatewayInvoiceId"]: "open",
        second: "canceled",
        invalid: "canceled",
    }
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    assert [(each["code"], each["gatewayInvoiceId"]) for each in errors] == [
        ("second_charge", second),
        ("charge_missing", invalid),
    ]
    assert await world.broken() == []
