"""A restored database lacks reissues, or payments of the charges that the reissues replaced.

The engine finds the payments of the replaced charges, and charges only the rest.
"""

from uuid import UUID

import pytest

from fatura.usecases.restore.matching import MatchKind
from tests.support.reissue_steps import unpaid_invoice
from tests.support.restore_steps import compare, create_unmatched_charge, lost_invoice_id
from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.sweep_steps import second_charge_events, sweep
from tests.support.world import Json, World

PAID_FIRST = 4000
REST = 9990 - PAID_FIRST


async def pay_first(world: World, charge_id: str) -> None:
    """Pay a part of a charge, then cancel the charge, as a reissue does."""
    await world.made(f"/v1/sandbox/charges/{charge_id}/pay", {"amountCents": PAID_FIRST})
    await world.made(f"/v1/sandbox/charges/{charge_id}/cancel")


async def pay_rest_and_check(world: World, invoice: Json, rest: str) -> None:
    """Check that the invoice has the charge `rest`. Pay this charge, and check that the invoice is paid."""
    await world.run()
    shown = await read(world, invoice)
    assert (shown["gatewayInvoiceId"], shown["paidCents"]) in {(rest, PAID_FIRST), (rest, 9990)}
    await pay_silently(world, rest)
    await pass_time(world, days=1)
    await sweep(world)
    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", rest, 9990)
    assert len(await charges(world, invoice)) == 2
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []


async def end_subscription(world: World, invoice: Json) -> None:
    """Cancel the invoice's subscription, so that no other cycle is billed."""
    await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")


@pytest.mark.parametrize("is_rest_paid", [False, True])
async def test_a_lost_invoice_gets_the_payments_of_its_replaced_charge(world: World, *, is_rest_paid: bool):
    """The backup lacks the invoice, its part payment and its reissue. [D-123, D-50, D-67 reissue]"""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan())
    lost = await lost_invoice_id(world, subscription)
    replaced = await create_unmatched_charge(world, lost, 9990)
    await pay_first(world, replaced.charge_id)
    rest = await create_unmatched_charge(world, lost, REST, attempt=2)
    if is_rest_paid:
        await world.made(f"/v1/sandbox/charges/{rest.charge_id}/pay")
    assert (await compare(world)).counts == {MatchKind.LOST: 2}
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    await end_subscription(world, invoice)

    if is_rest_paid:
        await world.run()
        assert (await read(world, invoice))["paidCents"] == 9990
        assert await world.broken() == []
    else:
        await pay_rest_and_check(world, invoice, rest.charge_id)


async def test_a_ready_invoice_gets_the_payments_of_its_replaced_charge(world: World):
    """In the backup, the invoice was not charged yet. [D-123, D-50, D-67 reissue]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await end_subscription(world, invoice)
    replaced = await create_unmatched_charge(world, UUID(invoice["id"]), 9990)
    await pay_first(world, replaced.charge_id)
    rest = await create_unmatched_charge(world, UUID(invoice["id"]), REST, attempt=2)
    await compare(world)

    await pay_rest_and_check(world, invoice, rest.charge_id)


@pytest.mark.parametrize("is_payment_in_backup", [True, False])
async def test_a_reissued_invoice_gets_the_charge_of_the_rest(world: World, *, is_payment_in_backup: bool):
    """The backup lacks the reissue. It may also lack the part payment before it. [D-123, D-51, D-67 reissue]"""
    invoice = await unpaid_invoice(world)
    await end_subscription(world, invoice)
    body = {"amountCents": PAID_FIRST}
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay", body)
    if is_payment_in_backup:
        await world.run("reconciliation")
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    rest = await create_unmatched_charge(world, UUID(invoice["id"]), REST, attempt=2)
    counts = {MatchKind.KNOWN: 1, MatchKind.ADOPTED: 1}
    assert (await compare(world, dry_run=True)).counts == (await compare(world)).counts == counts

    await pay_rest_and_check(world, invoice, rest.charge_id)


async def test_later_payments_of_a_canceled_charge_are_recorded_after_another_was_adopted(world: World):
    """Of two found charges, the invoice adopted one, and the engine canceled the other.

    The payer paid the canceled charge. [D-123, D-181, D-162]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await end_subscription(world, invoice)
    stray, own = [
        await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=attempt) for attempt in (1, 2)
    ]
    await compare(world)
    await world.run()
    assert (await read(world, invoice))["gatewayInvoiceId"] == own.charge_id

    await pay_silently(world, stray.charge_id)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", stray.charge_id)
    await sweep(world)

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", 9990)
    await world.run()
    assert await world.broken() == []


async def test_a_found_charge_with_another_amount_is_adopted_when_it_is_paid(world: World):
    """Until the payment, the charge is parked. No person has to act. [D-170, D-123]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    charge = await create_unmatched_charge(world, UUID(invoice["id"]), REST)
    await compare(world)
    await world.run()
    [emitted] = await world.events("invoice.issue_failed")
    assert emitted["data"]["error"]["code"] == "amount_differs"

    await sweep(world)
    assert (await read(world, invoice))["status"] == "ready"
    await pay_silently(world, charge.charge_id)
    await sweep(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == (
        "issued",
        charge.charge_id,
        REST,
    )
    assert len(await world.events("invoice.issue_failed")) == 1
    assert await world.broken() == []


async def test_an_adopted_charge_below_the_newest_number_gets_late_payments(world: World):
    """At the gateway, the adopted charge has number 1, and the canceled charge has number 2. The engine stores the
    adopted charge with number 2. [D-123, D-125]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    adopted, canceled = [
        await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=attempt) for attempt in (1, 2)
    ]
    await world.made(f"/v1/sandbox/charges/{canceled.charge_id}/cancel")
    await compare(world)
    await world.run()
    assert (await read(world, invoice))["gatewayInvoiceId"] == adopted.charge_id
    await queue_fault(world, "create_charge", "rejected")
    await world.made(f"/v1/invoices/{invoice['id']}/reissue", {})
    await world.run("issuance")
    assert (await read(world, invoice))["status"] == "ready"

    await pay_silently(world, adopted.charge_id)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    await sweep(world)

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", 9990)
    assert await world.broken() == []


async def test_a_charge_of_an_invoice_that_another_found_charge_paid_is_a_second_charge(world: World):
    """`fatura restored` finds two charges. One was paid and then canceled; the other is open. [D-123, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected")
    await world.run("issuance")
    paid = await create_unmatched_charge(world, UUID(invoice["id"]), 9990)
    await world.made(f"/v1/sandbox/charges/{paid.charge_id}/pay")
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    second = await create_unmatched_charge(world, UUID(invoice["id"]), 9990)

    report = await compare(world)

    assert [each.charge.charge_id for each in report.unmatched] == [second.charge_id]
    await sweep(world)
    assert (await read(world, invoice))["status"] == "paid"
    assert {each["status"] for each in await charges(world)} == {"canceled"}
    assert await world.broken() == []


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("paid_cents", [PAID_FIRST, 9990])
async def test_a_late_payment_of_a_replaced_charge_is_not_charged_again(
    world: World, *, is_listed: bool, paid_cents: int
):
    """In the backup, the next charge is not sent yet, and the charge that it replaces is unpaid.

    The replaced charge may be too old for the list of charges that `fatura restored` reads. [D-123, D-67 reissue]
    """
    invoice = await unpaid_invoice(world)
    await end_subscription(world, invoice)
    if not is_listed:
        await pass_time(world, hours=2)
    assert (await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})).json["status"] == "ready"
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay", {"amountCents": paid_cents})
    await compare(world)

    await world.run("issuance")

    made = [each["amountCents"] for each in await charges(world, invoice)]
    assert sorted(made) == ([9990] if paid_cents == 9990 else [REST, 9990])
    assert (await read(world, invoice))["paidCents"] == paid_cents
    assert await world.broken() == []


async def test_an_account_stays_frozen_until_its_replaced_charges_are_read(world: World):
    """[D-123, D-67 reissue]"""
    invoice = await unpaid_invoice(world)
    assert (await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})).json["status"] == "ready"
    await pay_silently(world, invoice["gatewayInvoiceId"])
    await queue_fault(world, "get_charge", "server_error")
    assert len((await compare(world)).problems) == 1
    await world.run("issuance")
    assert len(await charges(world, invoice)) == 1

    assert (await compare(world)).problems == []
    await world.run("issuance")

    assert (await read(world, invoice))["status"] == "paid"
    assert len(await charges(world, invoice)) == 1


@pytest.mark.parametrize(("open_cents", "status"), [(0, "paid"), (1000, "ready")])
async def test_a_waiting_manual_payment_is_recorded_before_a_lost_reissue_is_repeated(
    world: World, open_cents: int, status: str
):
    """The API answered 409 to a payment, and promised to record the payment if the charge turns out to be canceled.
    [D-123, D-52]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    total = invoice["totalCents"]
    successor = (await create_unmatched_charge(world, UUID(invoice["id"]), total, attempt=2)).charge_id
    await queue_fault(world, "cancel_charge", "timeout_after")
    refused = await world.post(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash"})
    assert "recorded automatically" in refused.json["detail"]
    # as if a refund had raised the open amount by `open_cents` after the request
    await world.sql("UPDATE merchant_request SET amount_cents = amount_cents - $1", open_cents)

    await compare(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await world.run("issuance", "reconciliation")
    await pass_time(world, hours=1)
    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == (status, total - open_cents)
    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    # a charge above the open amount stays open until a person decides
    assert states[successor] == ("canceled" if status == "paid" else "open")


async def test_a_paid_second_charge_found_by_the_command_pays_the_invoice_without_a_sweep(world: World):
    """Until the payment is recorded, the payer could pay the invoice's own charge too.
    [D-123, D-125, D-50]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    second = (
        await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"], attempt=2)
    ).charge_id
    await pay_silently(world, second)
    assert (await compare(world)).counts[MatchKind.UNMATCHED] == 1
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")

    await pass_time(world, minutes=15)
    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", invoice["totalCents"])
    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {invoice["gatewayInvoiceId"]: "canceled", second: "paid"}


async def test_a_canceled_found_charge_pays_the_invoice_before_its_next_one_is_adopted(world: World):
    """The older of two found charges was paid and then canceled. The engine cancels the newer charge.

    So the payer cannot pay both charges. [D-181, D-125]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    older, newer = [
        (await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=attempt)).charge_id
        for attempt in (1, 2)
    ]
    await pay_silently(world, older)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", older)
    await compare(world)
    await world.run("issuance", "reconciliation")

    assert (await read(world, invoice))["status"] == "paid"
    assert {each["status"] for each in await charges(world)} == {"canceled"}
    assert await second_charge_events(world) == [newer]
    assert await world.broken() == []


async def test_parked_found_charges_are_canceled_when_a_second_charge_pays_the_invoice(world: World):
    """The engine cancels the parked charges immediately, without waiting for the next nightly sweep. [D-181, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    found = [
        await create_unmatched_charge(world, UUID(invoice["id"]), cents, attempt=attempt)
        for attempt, cents in enumerate((9991, 9992), 1)
    ]
    await compare(world)
    await world.run()
    second = await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=3)
    await pay_silently(world, second.charge_id)
    await sweep(world)

    assert (await read(world, invoice))["status"] == "paid"
    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {second.charge_id: "paid"} | {each.charge_id: "canceled" for each in found}
    assert await world.broken() == []
