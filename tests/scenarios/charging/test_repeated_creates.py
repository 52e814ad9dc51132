"""Repeats of a creation request whose response was lost, at gateways that recognize a repeated request (D-33)."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    ChargeRequest,
    GatewayError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
)
from tests.support.sandbox_steps import attempts, charges, pass_time, read, ready_invoice
from tests.support.world import World


def know_repeats(monkeypatch: pytest.MonkeyPatch, *failures: GatewayError) -> None:
    """Make the sandbox recognize repeated requests by their key, and raise `failures` in its first creations.

    A creation that fails with an unknown outcome still creates its charge.
    """
    create, capabilities, queued = SandboxGateway.create_charge, SandboxGateway.capabilities, list(failures)

    async def create_once(gateway: SandboxGateway, request: ChargeRequest) -> Charge:
        failure = queued.pop(0) if queued else None
        if failure is not None and not isinstance(failure, UnknownOutcomeError):
            raise failure
        known = await gateway.find_charge(request.invoice_id, request.attempt)
        charge = known or await create(gateway, request)
        if failure is not None:
            raise failure
        return charge

    key = {"idempotency": "key", "idempotency_ttl": timedelta(hours=24)}
    monkeypatch.setattr(SandboxGateway, "create_charge", create_once)
    monkeypatch.setattr(SandboxGateway, "capabilities", lambda gateway: replace(capabilities(gateway), **key))


@pytest.mark.parametrize(
    "failure", [TransientError("429"), AuthFailedError("401"), PermanentError("key_reused", "Another body.")]
)
async def test_a_failed_repeat_leaves_the_outcome_of_the_first_call_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: GatewayError
) -> None:
    """The first call may have created a charge, so cancellation and new attempts are refused.
    [D-33, D-27 being issued]
    """
    await world.set_up_gateway(behaviour="never_pay")
    know_repeats(monkeypatch, UnknownOutcomeError("lost"), failure)
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await pass_time(world, seconds=6)

    assert (await attempts(world))[0]["state"] in {"sending", "confirmed"}
    if not isinstance(failure, PermanentError):
        assert (await world.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 409

    await pass_time(world, days=1)
    (charge,) = await charges(world)
    assert (await read(world, invoice))["gatewayInvoiceId"] == charge["chargeId"]
    assert await world.broken() == []


async def test_a_refused_repeat_without_a_found_charge_is_parked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call was not refused, so a person must decide whether a charge exists. [D-33, D-121]"""
    refusals = [PermanentError("key_reused", "Another body.") for _ in range(9)]
    know_repeats(monkeypatch, UnknownOutcomeError("lost"), *refusals)
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await world.sql("DELETE FROM sandbox_charge")
    await pass_time(world, days=1)

    assert [each["state"] for each in await attempts(world)] == ["parked"]
    (failed,) = await world.events("invoice.issue_failed")
    assert failed["data"]["error"]["code"] == "outcome_unknown"
    assert (await world.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 409


async def test_a_refused_repeat_waits_until_look_ups_show_the_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-121]"""
    create, capabilities, find = (
        SandboxGateway.create_charge,
        SandboxGateway.capabilities,
        SandboxGateway.find_charge,
    )
    sendings, shown = list[UUID](), list[bool]()

    async def create_late(gateway: SandboxGateway, request: ChargeRequest) -> Charge:
        sendings.append(request.invoice_id)
        if len(sendings) == 4:
            await create(gateway, request)
        if len(sendings) > 4:
            raise PermanentError("taken", "The reference is taken.")
        raise UnknownOutcomeError("cut")

    async def find_late(gateway: SandboxGateway, invoice_id: UUID, attempt: int) -> Charge | None:
        return await find(gateway, invoice_id, attempt) if shown else None

    monkeypatch.setattr(SandboxGateway, "create_charge", create_late)
    monkeypatch.setattr(SandboxGateway, "find_charge", find_late)
    monkeypatch.setattr(
        SandboxGateway,
        "capabilities",
        lambda gateway: replace(capabilities(gateway), idempotency="natural_id"),
    )
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await pass_time(world, minutes=4)
    assert len(sendings) == 4

    path = f"/v1/invoices/{invoice['id']}/retry-issuance"
    assert (await world.post(path)).json["status"] == "ready"
    assert len(sendings) == 5
    assert [each["state"] for each in await attempts(world)] == ["sending"], "not parked yet"

    shown.append(True)
    await pass_time(world, minutes=3)
    (charge,) = await charges(world)
    assert (await read(world, invoice))["gatewayInvoiceId"] == charge["chargeId"]
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []
