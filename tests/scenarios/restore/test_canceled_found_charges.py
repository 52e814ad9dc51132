"""`fatura restored` finds canceled charges that have payments or another amount than the invoice (D-170)."""

import json
from uuid import UUID

import pytest

from fatura.usecases.payments import gateway_payments
from tests.scenarios.restore.test_found_charge_answers import cancel_paid
from tests.scenarios.restore.test_found_charges import TOTAL
from tests.support.refund_steps import refund, refunded_at_gateway
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import charges, queue_fault, read, ready_invoice
from tests.support.sweep_steps import sweep
from tests.support.world import Json, World


async def canceled_with_another_amount(world: World) -> tuple[Json, str]:
    """Return an invoice and the gateway's id of its canceled charge, whose amount is above the invoice's total."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    charge = (await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL + 1)).charge_id
    await world.made(f"/v1/sandbox/charges/{charge}/cancel")
    return invoice, charge


@pytest.mark.parametrize("found_by", ["issuance", "sweep", "retry"])
async def test_a_canceled_charge_with_another_amount_that_pays_the_invoice_is_adopted(
    world: World, found_by: str
):
    """The invoice becomes paid and shows the canceled charge. No person has to act.

    A request `retry-issuance` does no harm. [D-170, D-123, D-50]
    """
    invoice, charge = await canceled_with_another_amount(world)
    if found_by == "issuance":
        await cancel_paid(world, charge)
    await compare(world)
    await world.run()
    if found_by != "issuance":
        assert (await read(world, invoice))["issueError"]["code"] == "amount_differs"
        await cancel_paid(world, charge)
    if found_by == "sweep":
        await sweep(world)
        await world.run("issuance")
    if found_by == "retry":
        await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", charge, TOTAL + 1)
    assert len(await world.events("invoice.overpaid")) == 1
    assert len(await world.events("invoice.payment_unexpected")) == 0
    await world.run()
    assert await world.broken() == []


async def pay_more_silently(world: World, charge_id: str, cents: int) -> None:
    """Add a payment to a charge at the gateway without notifying the engine."""
    payment = {"kind": "payment", "reference": f"of_{cents}", "amount_cents": cents}
    await world.sql(
        """
        UPDATE sandbox_charge
        SET entries = entries || jsonb_build_array($2::text::jsonb || jsonb_build_object('occurred_at', now()))
        WHERE charge_id = $1
        """,
        charge_id,
        json.dumps(payment),
    )


async def partly_paid_and_parked(world: World) -> tuple[Json, str]:
    """Return a `ready` invoice and the id of its canceled charge, which has another amount and was paid in part."""
    invoice, charge = await canceled_with_another_amount(world)
    await compare(world)
    await world.run()
    await world.made(f"/v1/sandbox/charges/{charge}/pay", {"amountCents": 3000})
    await sweep(world)
    await world.run()
    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("ready", 3000)
    return invoice, charge


async def test_a_part_payment_of_a_canceled_charge_with_another_amount_is_recorded(world: World):
    """The charge stays parked and is reported once. A retry charges the rest. [D-170, D-123, D-50]"""
    invoice, charge = await canceled_with_another_amount(world)
    await compare(world)
    await world.run()
    await cancel_paid(world, charge)
    await world.sql("UPDATE sandbox_charge SET entries = jsonb_set(entries, '{0,amount_cents}', '4000')")
    await sweep(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["issueError"]["code"], shown["paidCents"]) == (
        "ready",
        "amount_differs",
        4000,
    )
    assert len(await world.events("invoice.issue_failed")) == 1
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    await world.run()
    assert [each["amountCents"] for each in await charges(world, invoice) if each["status"] == "open"] == [
        TOTAL - 4000
    ]
    assert await world.broken() == []


@pytest.mark.parametrize("batch", [gateway_payments.BATCH, 1])
async def test_a_refund_of_a_parked_charge_ends_after_the_charge_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch, batch: int
):
    """The answer to the refund is lost. Before the next look-up, other payments of the charge cover the total.

    The invoice is first issued with the charge and then paid, even if one transaction cannot record all entries.
    [D-53, D-50, D-170, D-178]
    """
    monkeypatch.setattr(gateway_payments, "BATCH", batch)
    invoice, charge = await partly_paid_and_parked(world)
    await queue_fault(world, "refund_charge", "timeout_after")
    assert (await refund(world, invoice)).status == 202
    for cents in (TOTAL, 1):
        await pay_more_silently(world, charge, cents)
    for _ in range(2):
        await world.sql("UPDATE refund_request SET next_attempt_at = '2000-01-01' WHERE stage <> 'done'")
        await world.run()

    shown = await read(world, invoice)
    paid_cents = 3000 + TOTAL + 1
    assert (shown["status"], shown["paidCents"], shown["refundedCents"]) == ("paid", paid_cents, 3000)
    assert shown["gatewayInvoiceId"] == charge
    assert [each["status"] for each in shown["refunds"]] == ["done"]
    assert await refunded_at_gateway(world) == [3000]
    assert await world.broken() == []


async def test_an_invoice_whose_only_charge_is_canceled_and_partly_paid_is_canceled(world: World):
    """[D-123, D-27, D-50]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    charge = (await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL)).charge_id
    await cancel_paid(world, charge)
    await world.sql("UPDATE sandbox_charge SET entries = jsonb_set(entries, '{0,amount_cents}', '4000')")
    await compare(world)
    await world.run("issuance", "reconciliation")

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"], shown["payment"]) == ("canceled", 4000, None)
    types = ("invoice.issued", "invoice.partially_paid", "invoice.canceled")
    assert [each["type"] for each in await world.events(*types)] == list(types)
    assert await world.broken() == []
