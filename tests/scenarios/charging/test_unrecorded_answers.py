"""An answer that cannot be recorded is asked for again with growing pauses, and a person learns of the delay (D-34)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, ChargeRequest
from tests.scenarios.charging.test_unexpected_answers import issue_for_hours
from tests.support.refused_writes import refuse
from tests.support.sandbox_steps import (
    charges,
    end_leases,
    pass_time,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import NO_SWEEP, TRIPLE_ID, double_silently
from tests.support.world import Json, World

Idempotency = Literal["key", "natural_id", "lookup", "none"]


def note_calls(monkeypatch: pytest.MonkeyPatch, *, idempotency: Idempotency = "key") -> list[str]:
    """Let the gateway deduplicate requests if `idempotency` is `key` or `natural_id`.

    Return a list to which each request and each search adds its name.
    """
    capabilities, create, find = (
        SandboxGateway.capabilities,
        SandboxGateway.create_charge,
        SandboxGateway.find_charges,
    )
    calls = list[str]()

    def with_idempotency(self: SandboxGateway) -> Capabilities:
        return replace(capabilities(self), idempotency=idempotency, idempotency_ttl=timedelta(hours=24))

    async def create_charge(self: SandboxGateway, request: ChargeRequest) -> Charge:
        calls.append("create")
        made = (
            await find(self, request.invoice_id, request.attempt)
            if idempotency in {"key", "natural_id"}
            else []
        )
        return made[0] if made else await create(self, request)

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        calls.append("find")
        return await find(self, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "capabilities", with_idempotency)
    monkeypatch.setattr(SandboxGateway, "create_charge", create_charge)
    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    return calls


async def refuse_to_issue(world: World, invoice: Json) -> None:
    """Make PostgreSQL refuse to mark this invoice as issued."""
    await refuse(world, "invoice", "UPDATE", f"NEW.status = 'issued' AND NEW.invoice_id = '{invoice['id']}'")


async def mend(world: World, table: str = "invoice") -> None:
    await world.sql(f"DROP TRIGGER refuse ON {table}")


@pytest.mark.parametrize("idempotency", ["key", "natural_id", "lookup", "none"])
async def test_the_calls_become_rare_and_the_invoice_is_issued_once(
    world: World, monkeypatch: pytest.MonkeyPatch, idempotency: Idempotency
) -> None:
    """[D-34, D-186]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice, other = await ready_invoice(world), await ready_invoice(world)
    await world.sql(NO_SWEEP)
    await refuse_to_issue(world, invoice)
    calls = note_calls(monkeypatch, idempotency=idempotency)
    await issue_for_hours(world)
    assert len(calls) < 20
    [event] = await world.events("invoice.issue_delayed")
    assert event["data"]["invoice"]["id"] == invoice["id"]
    assert "cannot be recorded" in event["data"]["error"]["detail"]
    assert (await read(world, other))["status"] == "issued"

    await mend(world)
    await end_leases(world)
    await pass_time(world, hours=1, minutes=10)
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 2
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []


async def test_an_event_that_cannot_be_emitted_leads_to_rare_calls_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL also refuses the event about the delay. [D-34, D-186]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await world.sql(NO_SWEEP)
    await refuse(world, "event", "INSERT", "NEW.type IN ('invoice.issued', 'invoice.issue_delayed')")
    calls = note_calls(monkeypatch)
    await issue_for_hours(world)
    assert len(calls) < 20
    await mend(world, "event")
    await end_leases(world)
    await pass_time(world, hours=1, minutes=10)
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1


async def test_an_unrecorded_refusal_is_reported_when_it_can_be_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway refuses every request. [D-34]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected", times=100)
    await refuse(world, "charge", "UPDATE", "NEW.stage IN ('failed', 'parked')")
    calls = note_calls(monkeypatch)
    await issue_for_hours(world)
    assert calls.count("create") < 20
    await mend(world, "charge")
    await end_leases(world)
    await pass_time(world, hours=1, minutes=10)
    assert len(await world.events("invoice.issue_failed")) == 1
    assert (await read(world, invoice))["issueError"] is not None
    assert await charges(world) == []


async def test_copies_found_by_a_search_are_handled_when_the_answer_can_be_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway does not deduplicate requests, and holds two charges for the invoice. [D-33, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await refuse_to_issue(world, invoice)
    calls = note_calls(monkeypatch, idempotency="lookup")
    await world.run("issuance")
    [first] = await charges(world)
    await double_silently(world, {"gatewayInvoiceId": first["chargeId"]}, charge_id=TRIPLE_ID)
    await issue_for_hours(world)
    assert calls.count("find") < 20
    await mend(world)
    await end_leases(world)
    await pass_time(world, days=1)
    assert (await read(world, invoice))["status"] == "issued"
    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]
    assert [each["stage"] for each in await stored_charges(world)] == ["open"]


async def test_a_charge_that_searches_never_show_is_not_requested_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway does not deduplicate requests. The answer to the first request cannot be recorded. [D-33, D-181]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await world.sql(NO_SWEEP)
    await refuse_to_issue(world, invoice)
    await world.run("issuance")
    await mend(world)
    await end_leases(world)

    async def find_charges(_self: SandboxGateway, _invoice_id: UUID, _attempt: int) -> Sequence[Charge]:
        return []

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, hours=3)
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1
