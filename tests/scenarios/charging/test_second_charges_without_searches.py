"""A gateway without a search answers with a second charge, and its cancellation gets no answer (D-125)."""

from dataclasses import replace
from typing import Literal

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, ChargeRequest
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import charge_statuses, charges, pass_time, pay_silently, queue_fault, read
from tests.support.sweep_steps import NO_SWEEP
from tests.support.world import Json, World


@pytest.fixture(params=["none", "lookup"])
async def second(
    world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[Json, str]:
    """Return an invoice, and the id of its second charge. The gateway did not answer the second charge's cancellation.

    The invoice was reissued. While its new charge was being made, the payment of the first charge paid the invoice.
    """
    invoice = await unpaid_invoice(world)
    first: str = invoice["gatewayInvoiceId"]
    await world.sql(NO_SWEEP)
    create, capabilities = SandboxGateway.create_charge, SandboxGateway.capabilities
    idempotency: Literal["none", "lookup"] = request.param

    def with_idempotency(self: SandboxGateway) -> Capabilities:
        return replace(capabilities(self), idempotency=idempotency)

    async def pay_first(self: SandboxGateway, asked: ChargeRequest) -> Charge:
        made = await create(self, asked)
        await pay_silently(world, first)
        await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
        await world.run("reconciliation")
        return made

    monkeypatch.setattr(SandboxGateway, "capabilities", with_idempotency)
    monkeypatch.setattr(SandboxGateway, "create_charge", pay_first)
    assert (await ask(world, invoice)).status == 200
    await queue_fault(world, "cancel_charge", "timeout_before")
    await world.run("issuance")
    assert (await read(world, invoice))["status"] == "paid"
    [made] = [each["chargeId"] for each in await charges(world) if each["chargeId"] != first]
    return invoice, made


async def test_the_cancellation_is_repeated(world: World, second: tuple[Json, str]) -> None:
    """[D-125]"""
    await pass_time(world, days=5)
    assert (await charge_statuses(world))[second[1]] == "canceled"


async def test_its_payment_is_recorded(world: World, second: tuple[Json, str]) -> None:
    """[D-50, D-125]"""
    invoice, made = second
    await pay_silently(world, made)
    await pass_time(world, days=5)
    assert (await read(world, invoice))["paidCents"] == 2 * 9990
