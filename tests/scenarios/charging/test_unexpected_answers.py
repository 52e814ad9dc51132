"""An adapter that fails unexpectedly is called with growing pauses, and a person learns of the delay (D-34)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal, NoReturn
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, ChargeRequest, TransientError
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, end_leases, pass_time, queue_fault, read, ready_invoice
from tests.support.sweep_steps import NO_SWEEP, show_payment
from tests.support.world import World


async def issue_for_hours(world: World) -> None:
    """Run issuance once a minute for three hours."""
    for _ in range(180):
        await end_leases(world)
        await world.sql("UPDATE account SET clock_offset = clock_offset + interval '1 minute'")
        await world.run("issuance")


def fail_searches(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[int]:
    """Let every search by the reference raise `error`. Return the list to which each search adds its attempt."""
    calls = list[int]()

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        calls.append(attempt)
        raise error

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    return calls


@pytest.mark.parametrize("idempotency", ["key", "natural_id", "lookup"])
async def test_requests_for_a_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, idempotency: Literal["key", "natural_id", "lookup"]
) -> None:
    """[D-34]"""
    await world.set_up_gateway(behaviour="never_pay")
    await ready_invoice(world)
    await world.sql(NO_SWEEP)
    capabilities, calls = SandboxGateway.capabilities, list[int]()

    def with_idempotency(self: SandboxGateway) -> Capabilities:
        return replace(capabilities(self), idempotency=idempotency, idempotency_ttl=timedelta(hours=24))

    async def fail(self: SandboxGateway, request: ChargeRequest) -> NoReturn:
        calls.append(request.attempt)
        raise KeyError("status")

    monkeypatch.setattr(SandboxGateway, "capabilities", with_idempotency)
    monkeypatch.setattr(SandboxGateway, "create_charge", fail)
    await issue_for_hours(world)
    assert len(calls) < 20
    assert len(await world.events("invoice.issue_delayed")) == 1


async def test_searches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-34] The answer to the request for the charge was lost."""
    await world.set_up_gateway(behaviour="never_pay")
    await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await world.sql(NO_SWEEP)
    calls = fail_searches(monkeypatch, KeyError("id"))
    await issue_for_hours(world)
    assert len(calls) < 40
    assert len(await world.events("invoice.issue_delayed")) == 1


@pytest.mark.parametrize("change", ["reissued", "canceled"])
async def test_a_late_look_up_reads_the_own_charge_although_searches_fail(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """[D-50, D-125] The payer pays a charge that a reissue replaced, or that was canceled with its invoice."""
    invoice = await unpaid_invoice(world)
    await world.sql(NO_SWEEP)
    if change == "reissued":
        await queue_fault(world, "create_charge", "rejected", times=50)
        assert (await ask(world, invoice)).status == 200
        await world.run("issuance")
    else:
        assert (await cancel(world, invoice)).status == 200
    await show_payment(world, invoice["gatewayInvoiceId"])
    fail_searches(monkeypatch, TransientError("503"))
    await pass_time(world, days=5)
    assert (await read(world, invoice))["paidCents"] == 9990
