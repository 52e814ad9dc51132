"""The engine pauses before it repeats a call whose answer cannot be recorded, or whose adapter has a defect (D-186)."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, RefundRequest
from tests.support.refund_steps import paid_invoice, refund, refunded_at_gateway
from tests.support.refused_writes import refuse
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import cancel, charge_statuses, connection_id, now, pass_time, read
from tests.support.sweep_steps import NO_SWEEP, double_silently, sweep
from tests.support.webhook_steps import Hook, issued_with_webhooks
from tests.support.world import World


async def run_for_an_hour(world: World, lane: str) -> None:
    """Run a lane once a minute for an hour. All leases end in between."""
    for _ in range(60):
        await world.sql("UPDATE refund_request SET lease_until = NULL")
        await world.sql("UPDATE connection_sweep SET lease_until = NULL")
        await world.sql("UPDATE account SET clock_offset = clock_offset + interval '1 minute'")
        await world.run(lane)


async def test_a_refund_whose_answer_cannot_be_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway refunds once. [D-53, D-186]"""
    invoice = await paid_invoice(world)
    await refuse(world, "refund_request", "UPDATE", "NEW.stage = 'done'")
    get, make, calls = SandboxGateway.get_charge, SandboxGateway.refund_charge, list[str]()

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        calls.append("read")
        return await get(self, charge_id)

    async def refund_charge(self: SandboxGateway, request: RefundRequest) -> Charge:
        calls.append("refund")
        return await make(self, request)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    monkeypatch.setattr(SandboxGateway, "refund_charge", refund_charge)
    assert (await refund(world, invoice)).json["refunds"][0]["status"] == "pending"
    await run_for_an_hour(world, "reconciliation")
    assert calls.count("refund") == 1
    assert 5 <= calls.count("read") <= 8
    await world.sql("DROP TRIGGER refuse ON refund_request")
    await pass_time(world, minutes=11)
    assert (await read(world, invoice))["refundedCents"] == 9990
    assert await refunded_at_gateway(world) == [9990]
    assert await world.broken() == []


async def test_a_sweep_whose_list_cannot_be_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-161, D-186]"""
    await unpaid_invoice(world)
    await world.run()
    calls = list[datetime]()

    async def charges_since(_self: SandboxGateway, since: datetime) -> AsyncIterator[Charge]:
        calls.append(since)
        raise KeyError("data")
        yield

    monkeypatch.setattr(SandboxGateway, "charges_since", charges_since)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = $1", await now(world))
    await run_for_an_hour(world, "sweep")
    assert 5 <= len(calls) <= 8


async def test_a_charge_that_cannot_be_looked_at_is_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a webhook named the second charge. Three hours later, the adapter can read it. [D-162, D-186]"""
    issued = await issued_with_webhooks(world)
    await world.sql(NO_SWEEP)
    second = await double_silently(world, issued, status="paid")
    get, looks = SandboxGateway.get_charge, list[str]()

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == second:
            looks.append(charge_id)
            raise KeyError("status")
        return await get(self, charge_id)

    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "get_charge", get_charge)
        body = f'{{"chargeId": "{second}"}}'.encode()
        hook = Hook(body, str(world.account_id), await connection_id(world))
        assert (await hook.send(world)).status == 200
        await pass_time(world, hours=3)
    assert 10 <= len(looks) <= 20
    await pass_time(world, minutes=11)

    assert (await read(world, issued))["paidCents"] == 9990


async def test_late_look_ups_that_cannot_read_the_own_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter fails when it reads the charge of a canceled invoice. The search shows a paid copy of this charge.

    The engine records the payment, the pauses grow, and an event reports the charge. [D-125, D-186]
    """
    invoice = await unpaid_invoice(world)
    own = invoice["gatewayInvoiceId"]
    assert (await cancel(world, invoice)).status == 200
    await world.sql(NO_SWEEP)
    await double_silently(world, invoice, status="paid")
    await world.sql("UPDATE sandbox_charge SET attempt = 7 WHERE charge_id = $1", own)
    get, find, searches = SandboxGateway.get_charge, SandboxGateway.find_charges, list[int]()

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == own:
            raise KeyError("status")
        return await get(self, charge_id)

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        searches.append(attempt)
        return await find(self, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=3)
    assert (await read(world, invoice))["paidCents"] == 9990
    assert len(searches) < 30
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    assert [each["gatewayInvoiceId"] for each in errors if each["code"] == "charge_missing"] == [own]


async def test_late_look_ups_whose_search_fails_unexpectedly(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses grow. [D-125, D-186]"""
    invoice = await unpaid_invoice(world)
    assert (await cancel(world, invoice)).status == 200
    await world.sql(NO_SWEEP)
    searches = list[int]()

    async def find_charges(_self: SandboxGateway, _invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        searches.append(attempt)
        raise KeyError("id")

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=3)
    assert len(searches) < 30


async def test_a_cancellation_that_fails_unexpectedly(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The payer has paid a copy of the charge, so the engine cancels the charge. The adapter fails at first.
    [D-50, D-185, D-186]
    """
    invoice = await unpaid_invoice(world)
    own = invoice["gatewayInvoiceId"]
    await double_silently(world, invoice, status="paid")
    cancellations = list[str]()

    async def cancel_charge(_self: SandboxGateway, charge_id: str) -> Charge:
        cancellations.append(charge_id)
        raise KeyError("status")

    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "cancel_charge", cancel_charge)
        await sweep(world)
        assert (await read(world, invoice))["status"] == "paid"
        await pass_time(world, days=1)
    assert set(cancellations) == {own}
    assert 3 <= len(cancellations) < 20
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    assert ("second_charge", own) in [(each["code"], each["gatewayInvoiceId"]) for each in errors]
    await pass_time(world, days=2)
    assert (await charge_statuses(world))[own] == "canceled"
