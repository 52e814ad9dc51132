"""A payer pays a part just before the merchant cancels or reissues the invoice, and no poll has found the payment yet.

The gateway's answer to the cancellation contains the payment.
"""

from dataclasses import replace

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState
from tests.support.refund_steps import refund
from tests.support.sandbox_steps import cancel, charges, issued_invoice, read
from tests.support.world import Json, World

DISPUTE = """
    UPDATE sandbox_charge SET entries = entries || jsonb_build_array(jsonb_build_object(
        'kind', 'dispute_opened', 'reference', 'late', 'amount_cents', 4000,
        'occurred_at', now() + (SELECT clock_offset FROM account)))
"""
"""Disputes the payment in the gateway's table, because the sandbox's API refuses a dispute after a refund."""


@pytest.fixture
async def partly_paid(world: World) -> Json:
    """Return an issued invoice of 9990 cents, of which the gateway has received 4000."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    [charge] = await charges(world)
    await world.made(f"/v1/sandbox/charges/{charge['chargeId']}/pay", {"amountCents": 4000})
    return invoice


async def test_the_payment_of_a_canceled_invoice_is_recorded(world: World, partly_paid: Json) -> None:
    """[D-27, D-50]"""
    answer = await cancel(world, partly_paid)

    assert (answer.json["status"], answer.json["paidCents"]) == ("canceled", 4000)
    [event] = await world.events("invoice.partially_paid")
    assert event["data"]["entry"]["amountCents"] == 4000
    assert await world.broken() == []


async def test_the_next_charge_is_for_what_is_still_open(world: World, partly_paid: Json) -> None:
    """[D-51]"""
    answer = await world.post(f"/v1/invoices/{partly_paid['id']}/reissue", {})

    assert answer.json["paidCents"] == 4000
    assert [each["amountCents"] for each in answer.json["charges"]] == [9990, 5990]
    await world.run("issuance")
    assert await world.broken() == []


@pytest.mark.parametrize("by", ["gateway", "manual"])
async def test_the_next_charge_of_the_total_pays_the_invoice(
    world: World, partly_paid: Json, by: str
) -> None:
    """The first payment is refunded and then disputed. So the next charge is for the total again.
    [D-51, D-52, D-150]
    """
    await world.run("reconciliation")
    assert (await refund(world, partly_paid)).status == 200
    await world.sql(DISPUTE)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    assert (await read(world, partly_paid))["disputedAt"] is not None

    await world.made(f"/v1/invoices/{partly_paid['id']}/reissue", {})
    await world.run("issuance")

    newest = (await read(world, partly_paid))["charges"][-1]
    assert (newest["status"], newest["amountCents"]) == ("open", 9990)
    if by == "gateway":
        await world.made(f"/v1/sandbox/charges/{newest['gatewayInvoiceId']}/pay")
        await world.run("reconciliation")
    else:
        await world.made(f"/v1/invoices/{partly_paid['id']}/payments", {"method": "cash"})
    paid = await read(world, partly_paid)
    assert (paid["status"], paid["paidCents"], len(paid["charges"])) == ("paid", 13_990, 2)
    assert await world.events("invoice.overpaid") == []
    assert await world.broken() == []


@pytest.mark.parametrize(("outcome", "open_cents"), [("dispute_won", 6990), ("dispute_lost", 9990)])
async def test_a_reissue_after_a_payment_that_was_refunded_and_disputed_and_another_one(
    world: World, partly_paid: Json, outcome: str, open_cents: int
) -> None:
    """The payer pays 40.00, gets a refund, disputes the refunded payment, and pays another 30.00 of the same charge.

    If the dispute is lost, the payer got 80.00 back and paid only 70.00. [D-150, D-67 reissue, D-50]
    """
    paid = f"/v1/sandbox/charges/{partly_paid['gatewayInvoiceId']}"
    await world.made(f"{paid}/refund", {"amountCents": 4000})
    await world.sql(DISPUTE)
    await world.run("reconciliation")
    await world.sql(DISPUTE.replace("dispute_opened", outcome))
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    await world.made(f"{paid}/pay", {"amountCents": 3000})
    await world.run("reconciliation")

    await world.made(f"/v1/invoices/{partly_paid['id']}/reissue", {})
    await world.run()
    shown = await read(world, partly_paid)
    assert (shown["paidCents"], shown["refundedCents"]) == (7000, 4000)
    kinds = [each["kind"] for each in shown["payments"]]
    assert kinds == ["payment", "refund", "dispute_opened", outcome, "payment"]
    assert [each["amountCents"] for each in shown["charges"]] == [9990, open_cents]
    await world.made(f"/v1/sandbox/charges/{shown['gatewayInvoiceId']}/pay")
    await world.run("reconciliation")
    assert (await read(world, partly_paid))["status"] == "paid"
    assert await world.broken() == []


def call_charges_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gateway answer that every charge is paid."""
    get_charge = SandboxGateway.get_charge

    async def get_paid(gateway: SandboxGateway, charge_id: str) -> Charge:
        return replace(await get_charge(gateway, charge_id), state=ChargeState.PAID)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_paid)
    monkeypatch.setattr(SandboxGateway, "cancel_charge", get_paid)


@pytest.mark.parametrize("is_refunded", [True, False])
async def test_an_invoice_whose_charge_was_paid_with_less_is_canceled_at_once(
    world: World, partly_paid: Json, monkeypatch: pytest.MonkeyPatch, *, is_refunded: bool
) -> None:
    """The gateway shows the partly paid charge as paid, and does not cancel the charge. [D-27, D-50, D-53]"""
    call_charges_paid(monkeypatch)
    await world.run("reconciliation")
    shown = await read(world, partly_paid)
    assert (shown["status"], shown["paidCents"], shown["charges"][0]["status"]) == ("issued", 4000, "paid")
    if is_refunded:
        assert (await refund(world, partly_paid)).status in {200, 202}
    answer = await cancel(world, partly_paid)
    assert answer.status == 200, answer.body
    assert (answer.json["status"], answer.json["paidCents"]) == ("canceled", 4000)
    if not is_refunded:
        assert (await refund(world, partly_paid)).status in {200, 202}
    await world.run("reconciliation")
    assert (await read(world, partly_paid))["refundedCents"] == 4000
    assert await world.broken() == []


async def test_an_invoice_whose_charge_was_paid_with_less_is_reissued(
    world: World, partly_paid: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the next charge is sent, the invoice is `ready`, but its previous charge is paid. [D-170, D-67 reissue]"""
    with monkeypatch.context() as patches:
        call_charges_paid(patches)
        await world.run("reconciliation")
    answer = await world.post(f"/v1/invoices/{partly_paid['id']}/reissue")
    assert (answer.status, answer.json["status"]) == (200, "ready")
    assert [each["status"] for each in answer.json["charges"]] == ["paid", "sending"]
    assert await world.broken() == []
