"""Fatura refuses to cancel an invoice that is paid, canceled or being issued, or whose charge the gateway does not
cancel (D-27).
"""

import asyncio

import pytest

from tests.support.expect import UNKNOWN_ID, problem
from tests.support.sandbox_steps import (
    cancel,
    cancel_refused,
    charges,
    issued_invoice,
    move,
    park,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    table_held,
    until_waiting,
)
from tests.support.world import World


async def test_paid_and_canceled_invoices_are_refused(world: World):
    """[D-27, D-11]"""
    paid = await issued_invoice(world)
    await world.advance(paid["dueDate"])
    subscription = await world.enroll(await world.plan(await world.product(0)))
    await world.run("generation")
    [free] = await world.invoices(subscription)
    for invoice in (paid, free):
        assert "paid" in await cancel_refused(world, invoice)
    canceled = await ready_invoice(world)
    await cancel(world, canceled)
    assert "canceled already" in await cancel_refused(world, canceled)
    for sought in (UNKNOWN_ID, "7"):
        answer = await world.post(f"/v1/invoices/{sought}/cancel")
        assert problem(answer) == (404, "engine.not_found", None)
    assert len(await world.events("invoice.canceled")) == 1


async def test_an_invoice_paid_meanwhile_is_refused(world: World):
    """[D-27 not confirmed, D-112]"""
    invoice = await issued_invoice(world)
    charge = (await charges(world))[0]
    await pay_silently(world)

    assert "has been paid" in await cancel_refused(world, invoice)

    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "paid"
    assert [each["status"] for each in await charges(world)] == ["paid"]
    assert charge["chargeId"] == invoice["gatewayInvoiceId"]


@pytest.mark.parametrize(
    ("fault", "canceled", "words"),
    [
        ("timeout_before", False, "did not confirm"),
        ("timeout_after", True, "did not confirm"),
        ("server_error", False, "did not confirm"),
        ("rate_limited", False, "did not confirm"),
        ("rejected", False, "refuses to cancel"),
    ],
)
async def test_without_the_gateways_confirmation_it_is_refused(
    world: World, fault: str, words: str, *, canceled: bool
):
    """[D-27 not confirmed, D-46]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await queue_fault(world, "cancel_charge", fault)

    assert words in await cancel_refused(world, invoice)
    await world.run("reconciliation")

    assert (await read(world, invoice))["status"] == ("canceled" if canceled else "issued")
    again = await cancel(world, invoice)
    assert (again.status, (await read(world, invoice))["status"]) == (409 if canceled else 200, "canceled")
    assert len(await world.events("invoice.canceled")) == 1
    assert await world.broken() == []


async def test_a_charge_unknown_to_the_gateway_is_refused(world: World):
    """[D-27 not confirmed]"""
    invoice = await issued_invoice(world)
    await world.sql("UPDATE sandbox_charge SET charge_id = $1", f"sbx_{0:032x}")
    assert "does not know" in await cancel_refused(world, invoice)


async def test_a_connection_without_usable_credentials_is_refused(world: World):
    """[D-27 not confirmed]"""
    invoice = await issued_invoice(world)
    await world.sql("UPDATE gateway_connection SET credentials_sealed = 'broken'")
    assert "credentials" in await cancel_refused(world, invoice)


async def test_an_invoice_being_issued_is_refused(world: World):
    """[D-27 being issued]"""
    invoice = await ready_invoice(world)
    async with table_held(world, "sandbox_charge"):
        issuing = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        assert "being issued" in await cancel_refused(world, invoice)
    await issuing
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    assert [each["status"] for each in await charges(world)] == ["canceled"]


async def test_an_invoice_with_an_unknown_outcome_is_refused(world: World):
    """The gateway may have created a charge that Fatura does not know yet. [D-27 being issued, D-33]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    assert "being issued" in await cancel_refused(world, invoice)
    await pass_time(world, minutes=5)
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    assert [each["status"] for each in await charges(world)] == ["canceled"]


async def test_an_invoice_leased_by_a_worker_is_refused(world: World):
    """No charge is stored yet, but the worker that holds the lease can still create a charge. [D-27 being issued]"""
    invoice = await ready_invoice(world)
    await world.sql("UPDATE invoice SET lease_until = now() + interval '1 minute'")
    assert "being issued" in await cancel_refused(world, invoice)
    await world.sql("UPDATE invoice SET lease_until = now() - interval '1 second'")
    assert (await cancel(world, invoice)).status == 200


async def test_a_parked_invoice_is_refused_until_its_charge_is_known(world: World):
    """The error tells the client to call `retry-issuance`. [D-27 being issued]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await park(world)

    assert "retry issuance" in await cancel_refused(world, invoice)

    await move(world, (await charges(world))[0], "cancel")
    assert (await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance"))["status"] == "issued"
    assert (await cancel(world, invoice)).json["status"] == "canceled"
