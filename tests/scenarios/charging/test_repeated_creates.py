"""Fatura repeats a creation request whose response was lost, if the gateway recognizes repeats (D-33)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from uuid import UUID

import pytest

from fatura.domain.calendar import local_date
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
from tests.support.sandbox_steps import (
    charge_statuses,
    charges,
    end_leases,
    now,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import hide_first_charge
from tests.support.world import World


def know_repeats(monkeypatch: pytest.MonkeyPatch, *failures: GatewayError) -> None:
    """Make the sandbox recognize repeated requests for a charge, as a gateway with idempotency keys does.

    The first requests raise `failures`, in order. A request that raises UnknownOutcomeError has created the charge. A
    request that raises another failure creates no charge.
    """
    create, capabilities, queued = SandboxGateway.create_charge, SandboxGateway.capabilities, list(failures)

    async def create_once(gateway: SandboxGateway, request: ChargeRequest) -> Charge:
        failure = queued.pop(0) if queued else None
        if failure is not None and not isinstance(failure, UnknownOutcomeError):
            raise failure
        known = await gateway.find_charges(request.invoice_id, request.attempt)
        charge = known[0] if known else await create(gateway, request)
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
    """Fatura refuses to cancel the invoice until it knows whether the first call created a charge.
    [D-33, D-27 being issued]
    """
    await world.set_up_gateway(behaviour="never_pay")
    know_repeats(monkeypatch, UnknownOutcomeError("lost"), failure)
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await pass_time(world, seconds=6)

    assert (await stored_charges(world))[0]["stage"] in {"unknown", "open"}
    if not isinstance(failure, PermanentError):
        assert (await world.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 409

    await pass_time(world, days=1)
    (charge,) = await charges(world)
    assert (await read(world, invoice))["gatewayInvoiceId"] == charge["chargeId"]
    assert await world.broken() == []


async def test_a_refused_repeat_without_a_found_charge_is_parked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first call was lost, so the first call could have created a charge that look-ups do not show.
    A person must decide. [D-33, D-121]
    """
    refusals = [PermanentError("key_reused", "Another body.") for _ in range(9)]
    know_repeats(monkeypatch, UnknownOutcomeError("lost"), *refusals)
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await world.sql("DELETE FROM sandbox_charge")
    await pass_time(world, days=1)

    assert [each["stage"] for each in await stored_charges(world)] == ["parked"]
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
        SandboxGateway.find_charges,
    )
    sendings, shown = list[UUID](), list[bool]()

    async def create_late(gateway: SandboxGateway, request: ChargeRequest) -> Charge:
        sendings.append(request.invoice_id)
        if len(sendings) == 4:
            await create(gateway, request)
        if len(sendings) > 4:
            raise PermanentError("taken", "The reference is taken.")
        raise UnknownOutcomeError("cut")

    async def find_late(gateway: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return await find(gateway, invoice_id, attempt) if shown else []

    monkeypatch.setattr(SandboxGateway, "create_charge", create_late)
    monkeypatch.setattr(SandboxGateway, "find_charges", find_late)
    monkeypatch.setattr(
        SandboxGateway,
        "capabilities",
        lambda gateway: replace(capabilities(gateway), idempotency="natural_id"),
    )
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await pass_time(world, minutes=2)
    assert len(sendings) == 4, "three failures, and the first probe"

    path = f"/v1/invoices/{invoice['id']}/retry-issuance"
    assert (await world.post(path)).json["status"] == "ready"
    assert len(sendings) == 5
    assert [each["stage"] for each in await stored_charges(world)] == ["unknown"], "not parked yet"

    shown.append(True)
    await pass_time(world, minutes=3)
    (charge,) = await charges(world)
    assert (await read(world, invoice))["gatewayInvoiceId"] == charge["chargeId"]
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []


async def test_a_second_request_that_the_gateway_refuses_finds_the_first_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two look-ups do not show the first charge. The gateway refuses a second charge with the same reference. [D-33]"""
    invoice, first = await hide_first_charge(world, monkeypatch)

    await pass_time(world, hours=1)
    assert (await read(world, invoice))["gatewayInvoiceId"] == first
    assert await charge_statuses(world) == {first: "open"}
    assert await world.broken() == []


async def test_a_second_request_that_the_gateway_refuses_adopts_no_canceled_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the second request, a person cancels the first charge, which look-ups did not show. [D-33]"""
    invoice, first = await hide_first_charge(world, monkeypatch)
    await pass_time(world, seconds=81)
    await patch_connection(world, active=False)
    await pass_time(world, seconds=61)
    assert [each["stage"] for each in await stored_charges(world)] == ["absent"]

    await world.post(f"/v1/sandbox/charges/{first}/cancel")
    await patch_connection(world, active=True)
    await pass_time(world, hours=1)
    assert await world.events("invoice.canceled") == []

    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    found = await read(world, invoice)
    assert found["status"] == "issued"
    assert await charge_statuses(world) == {first: "canceled", found["gatewayInvoiceId"]: "open"}
    assert await world.broken() == []


async def test_a_request_that_a_wrong_clock_dated_is_not_repeated_with_a_forgotten_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host whose clock was 10 hours ahead sent the request 25 hours ago.

    The gateway has forgotten the key of the request. [D-5, D-33]
    """
    await world.set_up_gateway(behaviour="never_pay")
    create = SandboxGateway.create_charge
    know_repeats(monkeypatch, UnknownOutcomeError("lost"))
    invoice = await ready_invoice(world)
    await world.run("issuance")
    [only] = await charges(world)
    await world.sql("UPDATE charge SET first_sent_at = first_sent_at + interval '10 hours'")
    await queue_fault(world, "list_charges", "unknown", times=3)
    await end_leases(world)
    await pass_time(world, minutes=5)
    await world.sql("UPDATE charge SET first_sent_at = first_sent_at - interval '25 hours'")
    monkeypatch.setattr(SandboxGateway, "create_charge", create)  # the gateway has forgotten the key

    await end_leases(world)
    await pass_time(world, hours=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", only["chargeId"])
    assert await charge_statuses(world) == {only["chargeId"]: "open"}
    assert await world.broken() == []


async def test_a_repeat_sends_the_same_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first request and its repeats, the customer is renamed and the due date passes.
    The gateway would refuse a changed request with the same key. [D-49 request, D-33]
    """
    await world.set_up_gateway(behaviour="never_pay")
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    know_repeats(monkeypatch, UnknownOutcomeError("lost"))
    create, sent = SandboxGateway.create_charge, list[ChargeRequest]()

    async def noting(gateway: SandboxGateway, request: ChargeRequest) -> Charge:
        sent.append(request)
        if len(sent) == 2:
            raise TransientError("429")
        return await create(gateway, request)

    monkeypatch.setattr(SandboxGateway, "create_charge", noting)
    invoice = await ready_invoice(world)
    due_date = date.fromisoformat(invoice["dueDate"])
    await world.sql(
        "UPDATE account SET clock_offset = clock_offset + ($1::text::timestamptz - $2)",
        f"{due_date} 23:58 America/Sao_Paulo",
        await now(world),
    )
    await world.run("issuance")
    await world.patch(
        f"/v1/customers/{invoice['customer']['id']}", {"name": "Eva", "document": "52998224725"}
    )
    await pass_time(world, minutes=10)

    assert local_date(await now(world)) > due_date
    assert [(request.payer.name, request.due_date) for request in sent] == [("Ana", due_date)] * 3
    assert sent[1:] == sent[:1] * 2
    assert (await read(world, invoice))["status"] == "issued"
    assert await world.broken() == []
