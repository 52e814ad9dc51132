"""A cycle was billed again before `fatura restored` ran. The command finds charges of the lost invoice (D-181)."""

from uuid import UUID

import pytest

from tests.scenarios.restore.test_found_charges import TOTAL, states
from tests.support.restore_steps import compare, create_unmatched_charge, lost_invoice_id
from tests.support.sandbox_steps import pass_time, pay_silently, queue_fault, read
from tests.support.sweep_steps import second_charge_events, sweep
from tests.support.world import Json, World


async def billed_again(world: World, *, attempts: int, is_charged: bool = False) -> tuple[Json, list[str]]:
    """Bill the cycle of a lost invoice again. With `is_charged`, charge the new invoice.

    Return the new invoice and the ids of the lost invoice's charges. The lost invoice has `attempts` charges.
    """
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan())
    earlier_id: UUID = await lost_invoice_id(world, subscription)
    found = [
        (await create_unmatched_charge(world, earlier_id, TOTAL, attempt=attempt)).charge_id
        for attempt in range(1, attempts + 1)
    ]
    await world.run("generation")
    if is_charged:
        await world.run("issuance")
    [invoice] = await world.invoices(subscription)
    assert invoice["id"] != str(earlier_id)
    return invoice, found


async def test_all_charges_that_are_not_adopted_are_canceled(world: World):
    """[D-181, D-125]"""
    invoice, [oldest, older, newest] = await billed_again(world, attempts=3)
    await compare(world)
    await world.run()

    assert (await read(world, invoice))["gatewayInvoiceId"] == newest
    assert await states(world) == {oldest: "canceled", older: "canceled", newest: "open"}
    assert sorted(await second_charge_events(world)) == sorted([oldest, older])


async def test_a_refused_cancellation_is_repeated(world: World):
    """[D-181, D-125]"""
    _, [older, newer] = await billed_again(world, attempts=2)
    await queue_fault(world, "cancel_charge", "rejected")
    await compare(world)
    await world.run()
    assert await states(world) == {older: "open", newer: "open"}

    await pass_time(world, minutes=11)
    assert await states(world) == {older: "canceled", newer: "open"}
    assert await second_charge_events(world) == [older]


@pytest.mark.parametrize("by_sweep", [False, True])
async def test_a_later_payment_of_a_charge_that_is_not_adopted_is_recorded(world: World, *, by_sweep: bool):
    """The gateway refuses to cancel the charge, and the payer pays it. A repeated look or a sweep finds the payment.
    [D-181, D-50]
    """
    invoice, [older, newer] = await billed_again(world, attempts=2)
    await queue_fault(world, "cancel_charge", "rejected")
    await compare(world)
    await world.run()
    await pay_silently(world, older)
    if by_sweep:
        await world.sql("DELETE FROM unmatched_charge")
        await sweep(world)
    else:
        await pass_time(world, minutes=11)

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", newer, TOTAL)
    await world.run()
    assert await states(world) == {older: "paid", newer: "canceled"}


@pytest.mark.parametrize("is_paid", [False, True])
async def test_the_earlier_charge_of_a_cycle_that_was_charged_again_is_a_second_charge(
    world: World, *, is_paid: bool
):
    """A sweep finds the charge. The engine cancels it, or records its payment. [D-123, D-125, D-161]"""
    invoice, [earlier] = await billed_again(world, attempts=1, is_charged=True)
    own = (await read(world, invoice))["gatewayInvoiceId"]
    await compare(world)
    if is_paid:
        await pay_silently(world, earlier)
    await sweep(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["gatewayInvoiceId"], shown["paidCents"]) == (own, TOTAL if is_paid else 0)
    expected = {earlier: "paid", own: "canceled"} if is_paid else {earlier: "canceled", own: "open"}
    assert await states(world) == expected
    assert set(await second_charge_events(world)) == {earlier}


async def test_a_refused_cancellation_of_the_adopted_charge_is_reported(world: World):
    """The invoice was paid without the gateway, and the charge can still be paid. [D-181, D-185]"""
    invoice, [found] = await billed_again(world, attempts=1)
    await compare(world)
    await world.run()
    await world.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash"})
    await world.sql("UPDATE sandbox_charge SET status = 'open'")
    await queue_fault(world, "cancel_charge", "rejected")
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")

    assert await second_charge_events(world) == [found]
    assert await states(world) == {found: "open"}


async def test_the_sweep_recognizes_the_adopted_charge(world: World):
    """[D-181, D-161]"""
    await billed_again(world, attempts=1)
    await compare(world)
    await world.run()
    await sweep(world)

    [stored] = await world.sql("SELECT listed_at FROM charge")
    assert stored["listed_at"] is not None


async def test_an_invoice_with_a_part_payment_of_the_adopted_charge_is_canceled(world: World):
    """The answer to the cancellation shows the payment. [D-181, D-50]"""
    invoice, [found] = await billed_again(world, attempts=1)
    await compare(world)
    await world.run()
    await pay_silently(world)
    await world.sql(
        "UPDATE sandbox_charge SET status = 'open', entries = jsonb_set(entries, '{0,amount_cents}', '1')"
    )

    await world.made(f"/v1/invoices/{invoice['id']}/cancel")
    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("canceled", found, 1)
