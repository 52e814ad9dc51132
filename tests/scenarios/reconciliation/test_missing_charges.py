"""Fatura reports a charge that the gateway no longer knows, but creates no other charge by itself (D-56)."""

import pytest

from tests.scenarios.merchant_actions.test_refused_later_requests import send
from tests.scenarios.merchant_actions.test_request_histories import show
from tests.support.sandbox_steps import (
    cancel,
    charges,
    issued_invoice,
    pass_time,
    queue_fault,
    read,
)
from tests.support.world import Json, World

FORGET = "UPDATE sandbox_charge SET connection_id = $1"


async def forgotten(world: World) -> Json:
    """Return an issued invoice whose charge the newest poll has not found.

    To hide the charge from the poll, the function moves the charge to another sandbox connection.
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    other = (await world.connect(issuesCharges=False))["connectionId"]
    await world.sql(FORGET, other)
    await poll(world)
    return invoice


async def poll(world: World) -> None:
    await world.sql("UPDATE invoice SET next_attempt_at = created_at WHERE status <> 'canceled'")
    await world.run("reconciliation")


async def missing(world: World) -> Json:
    """Return an issued invoice whose charge is missing."""
    invoice = await forgotten(world)
    await pass_time(world, hours=1.1)
    assert (await read(world, invoice))["charges"][0]["status"] == "not_made"
    return invoice


@pytest.mark.faults
async def test_two_polls_an_hour_apart_end_the_charge(world: World) -> None:
    """[D-56]"""
    invoice = await forgotten(world)
    for _ in range(3):
        await pass_time(world, minutes=15)
        await poll(world)
    assert (await read(world, invoice))["charges"][0]["status"] == "open", "less than an hour"

    await pass_time(world, minutes=20)

    shown = await read(world, invoice)
    assert (shown["status"], shown["payment"]) == ("issued", None)
    [ended] = shown["charges"]
    assert (ended["status"], ended["error"]["code"]) == ("not_made", "charge_missing")
    [event] = await world.events("invoice.charge_missing")
    assert event["data"]["error"]["gatewayInvoiceId"] == shown["gatewayInvoiceId"]
    await pass_time(world, days=30)
    assert len(await world.events("invoice.charge_missing")) == 1
    assert len(await charges(world, invoice)) <= 1
    assert await world.broken() == []


async def test_a_charge_that_is_known_again_counts_anew(world: World) -> None:
    """[D-56]"""
    invoice = await forgotten(world)
    own = (await world.sql("SELECT connection_id FROM invoice"))[0]["connection_id"]
    other = (await world.sql("SELECT connection_id FROM sandbox_charge"))[0]["connection_id"]
    await world.sql(FORGET, own)
    await pass_time(world, minutes=59)
    await poll(world)
    await world.sql(FORGET, other)
    await poll(world)
    await pass_time(world, minutes=50)
    assert (await read(world, invoice))["charges"][0]["status"] == "open"
    await pass_time(world, minutes=15)
    assert (await read(world, invoice))["charges"][0]["status"] == "not_made"

    # The gateway shows the charge again before a person reissues the invoice. A late look-up finds the charge. [D-125]
    await world.sql(FORGET, own)
    await pass_time(world, hours=2)
    assert (await read(world, invoice))["charges"][0]["status"] == "open"
    assert len(await payable(world)) == 1
    assert await world.broken() == []


async def payable(world: World) -> list[Json]:
    return [each for each in await charges(world) if each["status"] == "open"]


async def test_an_invoice_without_its_charge_can_be_reissued(world: World) -> None:
    """If the gateway shows the old charge again after the reissue, Fatura cancels the old charge.
    [D-56, D-51, D-125]
    """
    invoice = await missing(world)
    own = (await world.sql("SELECT connection_id FROM invoice"))[0]["connection_id"]
    assert (await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})).json["status"] == "ready"
    await world.run("issuance")
    assert (await read(world, invoice))["status"] == "issued"

    await world.sql(FORGET, own)
    await pass_time(world, hours=2)

    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert (await read(world, invoice))["status"] == "issued"
    assert await world.broken() == []


async def test_an_invoice_without_its_charge_can_be_canceled(world: World) -> None:
    """[D-56, D-27 charge]"""
    invoice = await missing(world)
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    assert await world.broken() == []


async def test_an_invoice_without_its_charge_can_be_paid_by_hand(world: World) -> None:
    """If the gateway shows the charge again after the payment, Fatura cancels the charge. [D-56, D-52, D-125]"""
    invoice = await missing(world)
    own = (await world.sql("SELECT connection_id FROM invoice"))[0]["connection_id"]
    assert len(await world.events("invoice.charge_missing")) == 1
    paid = await world.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash"})
    assert (paid["status"], paid["paidCents"], len(paid["payments"])) == ("paid", 9990, 1)

    await world.sql(FORGET, own)
    await pass_time(world, hours=2)

    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert await show(world, invoice) == ("paid", 9990, [("canceled", 9990)])
    assert len(await world.events("invoice.paid")) == 1
    assert await world.broken() == []


async def test_a_charge_that_is_known_again_after_the_cancellation_is_canceled(world: World) -> None:
    """The gateway does not answer the first cancellations of the charge, so Fatura repeats them. [D-56, D-50, D-125]"""
    invoice = await missing(world)
    own = (await world.sql("SELECT connection_id FROM invoice"))[0]["connection_id"]
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    await queue_fault(world, "cancel_charge", "timeout_before", times=2)
    await world.sql(FORGET, own)

    await pass_time(world, hours=2)

    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert await world.broken() == []


async def test_a_stored_payment_is_recorded_if_the_missing_charge_was_canceled(world: World) -> None:
    """[D-56, D-171, D-52]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    own = (await world.sql("SELECT connection_id FROM invoice"))[0]["connection_id"]
    other = (await world.connect(issuesCharges=False))["connectionId"]
    await queue_fault(world, "cancel_charge", "timeout_after")
    assert (await world.post(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash"})).status == 409
    await world.sql(FORGET, other)
    await poll(world)
    await pass_time(world, hours=1.1)
    assert (await read(world, invoice))["charges"][0]["status"] == "not_made"

    await world.sql(FORGET, own)
    await poll(world)  # as after a webhook

    paid = await read(world, invoice)
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert paid["charges"][0]["status"] == "canceled"
    assert await world.broken() == []


@pytest.mark.parametrize("action", ["payment", "reissue", "cancel", "none"])
async def test_a_late_look_up_finds_the_missing_charge_canceled(world: World, action: str) -> None:
    """The newest stored request is applied. If no request is stored, the invoice is canceled. [D-56, D-171, D-27]"""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    own = (await world.sql("SELECT connection_id FROM invoice"))[0]["connection_id"]
    other = (await world.connect(issuesCharges=False))["connectionId"]
    if action == "none":
        await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    else:
        await queue_fault(world, "cancel_charge", "timeout_after")
        assert (await send(world, invoice, action, key="a")).status == 409
    await world.sql(FORGET, other)
    await poll(world)
    await pass_time(world, hours=2)
    assert len(await world.events("invoice.charge_missing")) == 1
    await world.sql(FORGET, own)
    await pass_time(world, hours=7)
    expected = {
        "payment": ("paid", 9990, [("canceled", 9990)]),
        "reissue": ("issued", 0, [("canceled", 9990), ("open", 9990)]),
        "cancel": ("canceled", 0, [("canceled", 9990)]),
        "none": ("canceled", 0, [("canceled", 9990)]),
    }
    assert await show(world, invoice) == expected[action]
    assert await world.broken() == []


@pytest.mark.parametrize("later", ["payments", "refunds"])
async def test_a_payment_that_waits_for_a_missing_charge_blocks_others_for_a_day(
    world: World, later: str
) -> None:
    """[D-56, D-171, D-52, D-151]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    payments = f"/v1/invoices/{invoice['id']}/payments"
    await world.made(payments, {"method": "cash", "amountCents": 4000})
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await world.post(payments, {"method": "cash", "amountCents": 5990})).status == 409
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/forget")
    await poll(world)

    await pass_time(world, hours=1.1)
    assert (await read(world, invoice))["charges"][0]["status"] == "not_made"

    body: Json = {"method": "cash", "amountCents": 3000} if later == "payments" else {}
    path = f"/v1/invoices/{invoice['id']}/{later}"
    assert (await world.post(path, body)).status == 409
    await world.sql("UPDATE merchant_request SET in_progress_until = in_progress_until - interval '25 hours'")
    assert (await world.post(path, body)).status == 200
    assert await world.sql("SELECT FROM merchant_request") == []
    assert await world.broken() == []
