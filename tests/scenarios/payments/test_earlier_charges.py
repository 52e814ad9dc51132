"""Earlier charges of a reissued invoice: Fatura records their payments, and cancels charges that can still be paid."""

from datetime import timedelta

import pytest

from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import (
    charges,
    now,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.world import Json, World


@pytest.fixture
async def issued(world: World) -> Json:
    """Return an issued invoice of 99.90 that nobody pays."""
    return await unpaid_invoice(world)


async def _pay(world: World, charge_id: str, *, amount_cents: int = 9990) -> None:
    await world.made(f"/v1/sandbox/charges/{charge_id}/pay", {"amountCents": amount_cents})


async def _states(world: World) -> dict[str, str]:
    return {each["chargeId"]: each["status"] for each in await charges(world)}


async def test_a_charge_beside_a_paid_one_is_canceled_although_cancellations_fail(
    world: World, issued: Json
) -> None:
    """[D-50, D-51]"""
    await ask(world, issued, dueDate="2033-12-20")
    await world.run("issuance")
    own = (await read(world, issued))["gatewayInvoiceId"]
    await queue_fault(world, "cancel_charge", "timeout_before", times=2)
    await _pay(world, issued["gatewayInvoiceId"])
    await world.run()
    assert (await _states(world))[own] == "open"

    await pass_time(world, minutes=25)

    assert (await _states(world))[own] == "canceled"
    assert (await read(world, issued))["status"] == "paid"


async def test_a_payment_of_the_earlier_charge_of_a_ready_invoice_is_recorded(
    world: World, issued: Json
) -> None:
    """The gateway refuses the next charge, so the invoice stays `ready`. [D-51, D-125]"""
    await queue_fault(world, "create_charge", "rejected")
    await ask(world, issued)
    await world.run("issuance")
    assert (await read(world, issued))["status"] == "ready"

    await _pay(world, issued["gatewayInvoiceId"])
    await world.run("reconciliation")

    paid = await read(world, issued)
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert await world.broken() == []


async def test_the_earlier_charge_of_a_ready_invoice_is_checked_without_a_webhook(
    world: World, issued: Json
) -> None:
    """[D-51, D-125]"""
    await queue_fault(world, "create_charge", "rejected")
    await ask(world, issued)
    await world.run("issuance")
    await pay_silently(world, issued["gatewayInvoiceId"])

    await pass_time(world, minutes=15)

    assert (await read(world, issued))["status"] == "paid"


@pytest.mark.faults
async def test_an_earlier_paid_charge_does_not_decide_about_an_unpaid_invoice(world: World) -> None:
    """The invoice is not overdue before the due date of its newest charge. [D-26, D-50, D-51]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await world.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "check", "amountCents": 4000})
    await world.run("issuance")
    await world.made(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 4000})
    [earlier] = await charges(world)
    await _pay(world, earlier["chargeId"], amount_cents=5990)
    await world.run("reconciliation")
    await pass_time(world, days=5)
    due_date = (await now(world) + timedelta(days=20)).date().isoformat()
    await ask(world, invoice, dueDate=due_date)
    await world.run()

    await pass_time(world, days=2)
    assert (await read(world, invoice))["status"] == "issued"
    await pass_time(world, days=20)
    assert (await read(world, invoice))["status"] == "overdue"


async def test_a_parked_charge_of_an_invoice_that_was_paid_meanwhile_is_canceled(
    world: World, issued: Json
) -> None:
    """[D-50, D-51, D-125]"""
    await queue_fault(world, "create_charge", "timeout_after")
    await ask(world, issued)
    await world.run("issuance")
    await world.sql(
        "UPDATE sandbox_charge SET amount_cents = 999 WHERE charge_id <> $1", issued["gatewayInvoiceId"]
    )
    await pass_time(world, minutes=5)
    stages = [each["stage"] for each in await stored_charges(world)]
    assert stages == ["canceled", "parked"]

    await _pay(world, issued["gatewayInvoiceId"])
    await world.run("reconciliation")
    await pass_time(world, minutes=30)

    assert (await read(world, issued))["status"] == "paid"
    assert set((await _states(world)).values()) == {"canceled"}
    codes = [each["data"]["error"]["code"] for each in await world.events("invoice.issue_failed")]
    assert codes == ["amount_differs", "second_charge"]
    assert await world.broken() == []
