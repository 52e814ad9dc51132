"""The answer to a request for a charge is lost, and a webhook names the charge (D-162)."""

from dataclasses import replace

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.scenarios.reconciliation.test_unmatched_charges import SECRET, looked_at, notify, waiting
from tests.support.sandbox_steps import (
    charges,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import double_silently, second_charge_events
from tests.support.world import Json, World


async def lost_charge(world: World) -> tuple[Json, str]:
    """Return an invoice, and the gateway's id of its charge, which the engine does not know."""
    await world.set_up_gateway(webhookSecret=SECRET, behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    return invoice, lost["chargeId"]


@pytest.mark.parametrize("is_lagging", [False, True])
async def test_the_invoice_adopts_the_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_lagging: bool
) -> None:
    """The gateway may not find the charge by its reference yet. The request is not sent again. [D-162, D-33]"""

    async def nothing(*_: object) -> list[Charge]:
        return []

    if is_lagging:
        monkeypatch.setattr(SandboxGateway, "find_charges", nothing)
    invoice, lost = await lost_charge(world)

    await notify(world, lost)
    await pass_time(world, minutes=5)

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"]) == ("issued", lost)
    assert len(await charges(world)) == 1
    assert await second_charge_events(world) == []
    assert await world.broken() == []


async def test_the_invoice_adopts_one_of_two_charges(world: World) -> None:
    """The other is canceled. [D-162, D-125]"""
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
