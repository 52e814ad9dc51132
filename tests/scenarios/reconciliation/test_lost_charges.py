"""The answer to a request for a charge is lost, and a webhook names the charge (D-162)."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.scenarios.reconciliation.test_unmatched_charges import SECRET, looked_at, notify, waiting
from tests.support.push_steps import skip
from tests.support.reissue_steps import ask
from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
    table_held,
    until_waiting,
)
from tests.support.sweep_steps import double_silently, second_charge_events
from tests.support.world import Json, World


async def lost_charge(world: World) -> tuple[Json, str]:
    """Return an invoice, and the gateway's id of its charge. The engine does not know this id."""
    await world.set_up_gateway(webhookSecret=SECRET, behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    return invoice, lost["chargeId"]


@pytest.fixture
def lagging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make look-ups by reference find no charge, as if the gateway's search were not up to date."""

    async def nothing(*_: object) -> list[Charge]:
        return []

    monkeypatch.setattr(SandboxGateway, "find_charges", nothing)


@pytest.mark.parametrize("is_lagging", [False, True])
async def test_the_invoice_adopts_the_charge(
    world: World, request: pytest.FixtureRequest, *, is_lagging: bool
) -> None:
    """Even if look-ups by reference do not show the charge yet, the request is not sent again. [D-162, D-33]"""
    if is_lagging:
        request.getfixturevalue("lagging")
    invoice, lost = await lost_charge(world)

    await notify(world, lost)
    await pass_time(world, minutes=5)

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"]) == ("issued", lost)
    assert len(await charges(world)) == 1
    assert await second_charge_events(world) == []
    assert await world.broken() == []


async def test_the_invoice_adopts_one_of_two_charges(world: World) -> None:
    """The other charge is canceled. [D-162, D-125]"""
    invoice, lost = await lost_charge(world)
    second = await double_silently(world, {"gatewayInvoiceId": lost})
    for each in (lost, second):
        await notify(world, each)

    await looked_at(world)
    await pass_time(world, minutes=15)

    assert (await read(world, invoice))["status"] == "issued"
    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]
    assert len(await second_charge_events(world)) == 1
    assert await world.broken() == []


@pytest.mark.parametrize(("is_paid", "status"), [(True, "paid"), (False, "issued")])
async def test_a_parked_charge_at_a_gateway_without_look_ups_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_paid: bool, status: str
) -> None:
    """[D-162, D-33, D-50]"""
    capabilities = SandboxGateway.capabilities
    monkeypatch.setattr(
        SandboxGateway, "capabilities", lambda self: replace(capabilities(self), idempotency="none")
    )
    await world.set_up_gateway(webhookSecret=SECRET, behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await pass_time(world, minutes=5)
    assert [each["stage"] for each in await stored_charges(world)] == ["parked"]
    (parked,) = await charges(world)
    if is_paid:
        await pay_silently(world)

    await notify(world, parked["chargeId"])
    await looked_at(world)
    await world.run("issuance", "reconciliation")

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"]) == (status, parked["chargeId"])
    assert await waiting(world) == []
    assert await world.broken() == []


@pytest.mark.usefixtures("lagging")
async def test_the_invoice_adopts_one_of_two_charges_while_a_request_is_in_progress(world: World) -> None:
    """Two look-ups found no charge, so the engine sends the request again.

    During this second request, a webhook makes the engine look at the charge of the first request.
    [D-162, D-181, D-125]
    """
    invoice, lost = await lost_charge(world)
    await pass_time(world, seconds=81)
    await skip(world, timedelta(seconds=61))
    await notify(world, lost)
    async with table_held(world, "sandbox_charge"):
        sending = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        await looked_at(world)
    await sending
    await world.run("issuance", "reconciliation")

    assert (await read(world, invoice))["gatewayInvoiceId"] == lost
    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states.pop(lost) == "open"
    assert [*states.values()] == ["canceled"]
    assert await second_charge_events(world) == [*states]
    assert await world.broken() == []


async def test_a_charge_with_the_requested_amount_is_adopted(world: World) -> None:
    """A payment of the replaced charge is recorded after the request, so the open amount is now lower.

    [D-162, D-181, D-67 reissue]
    """
    await world.set_up_gateway(webhookSecret=SECRET, behaviour="never_pay")
    issued = await issued_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await ask(world, issued)
    await world.run("issuance")
    replaced = issued["gatewayInvoiceId"]
    (lost,) = [each["chargeId"] for each in await charges(world) if each["chargeId"] != replaced]
    await world.made(f"/v1/sandbox/charges/{replaced}/pay", {"amountCents": 4000})
    await notify(world, replaced)
    await world.run("reconciliation")
    assert (await read(world, issued))["paidCents"] == 4000

    await notify(world, lost)
    await looked_at(world)
    await world.run("issuance")

    shown = await read(world, issued)
    assert (shown["status"], shown["gatewayInvoiceId"]) == ("issued", lost)
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []
