"""`fatura account suspend` waits until every charge, refund or cancellation in progress has ended (D-242)."""

import asyncio
from collections.abc import AsyncGenerator, Container
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import pytest

from fatura.domain.account import Account
from fatura.domain.audit import Origin
from fatura.domain.audit_actions import INVOICE_CANCEL
from fatura.domain.errors import EngineError
from fatura.gateways import port
from fatura.usecases.accounts import suspension
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.charging import issuance
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import begin
from fatura.usecases.merchant_actions import cancellation, charge_release
from fatura.usecases.merchant_actions.charge_release import Begun, Refused, Released, Reserved
from fatura.usecases.payments import merchant_requests, refund_calls
from fatura.usecases.pricing import price_pull, pricing_test
from fatura.usecases.transaction import in_transaction, load_account, open_work
from tests.support.operator import OPERATOR
from tests.support.reissue_steps import ask
from tests.support.sandbox_steps import (
    cancel,
    charges,
    end_leases,
    issued_invoice,
    move,
    queue_fault,
    read,
    ready_invoice,
    table_held,
    until_waiting,
)
from tests.support.world import Json, World

A_WHILE = 1.5
SOON_SECONDS = 5


@asynccontextmanager
async def waiting_suspension(world: World) -> AsyncGenerator[list[float]]:
    """Start to suspend the account. The suspension must wait while the `async with` block runs, and end soon after.

    Yield the list of the maximum waits that the suspension reports, in seconds.
    """
    told: list[float] = []
    asked: asyncio.Task[datetime] = asyncio.create_task(
        suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR, on_wait=told.append)
    )
    await asyncio.sleep(A_WHILE)
    assert not asked.done()
    yield told
    await asyncio.wait_for(asked, SOON_SECONDS)


async def account_of(world: World) -> Account:
    return await load_account(world.deps, world.account_id)


async def test_a_suspension_waits_for_a_charge_that_is_being_sent(world: World):
    """[D-242]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    account = await account_of(world)
    _, calls = await in_transaction(world.deps, account, issuance._reserve_due, limit=1)

    async with waiting_suspension(world) as told:
        assert await world.sql("SELECT 1 FROM sandbox_charge") == []
        await issuance.call_and_record(world.deps, account, calls)

    assert 0 < told[0] <= issuance.LEASE.total_seconds()
    assert len(told) == 1
    assert len(await world.sql("SELECT 1 FROM sandbox_charge")) == 1


async def test_a_suspension_waits_for_the_lease_of_a_dead_worker(world: World):
    """[D-242]"""
    await ready_invoice(world)
    account = await account_of(world)
    await in_transaction(world.deps, account, issuance._reserve_due, limit=1)
    async with waiting_suspension(world):
        await end_leases(world)
    assert await world.sql("SELECT 1 FROM sandbox_charge") == []


@pytest.mark.faults
async def test_a_suspension_waits_for_a_refund(world: World):
    """The suspension waits for the transaction that reserves the refund, and for the refund's call. [D-242, D-53]"""
    invoice = await issued_invoice(world)
    [charge] = await charges(world)
    await move(world, charge, "pay")
    await world.run()
    await queue_fault(world, "refund_charge", "rate_limited")
    assert (await world.post(f"/v1/invoices/{invoice['id']}/refunds", {})).status == 202
    await world.sql("UPDATE refund_request SET next_attempt_at = '2000-01-01'")
    account = await account_of(world)

    async with open_work(world.deps, account) as work:
        _, calls = await refund_calls._claim_due(work, limit=1)
        asked = asyncio.create_task(suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR))
        await asyncio.sleep(A_WHILE)
        assert not asked.done()
    await asyncio.sleep(A_WHILE)
    assert not asked.done()
    assert await world.sql("SELECT 1 FROM payment_entry WHERE kind = 'refund'") == []

    await refund_calls._call_and_record(world.deps, account, calls)

    await asyncio.wait_for(asked, SOON_SECONDS)
    assert len(await world.sql("SELECT 1 FROM payment_entry WHERE kind = 'refund'")) == 1


async def test_a_suspension_waits_for_a_cancellation(world: World):
    """[D-242, D-27]"""
    invoice = await issued_invoice(world)
    async with table_held(world, "sandbox_charge"):
        canceling = asyncio.create_task(cancel(world, invoice))
        await until_waiting(world)
        asked = asyncio.create_task(suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR))
        await asyncio.sleep(A_WHILE)
        assert not asked.done()
    assert (await canceling).status == 200
    await asyncio.wait_for(asked, SOON_SECONDS)


@pytest.mark.faults
@pytest.mark.parametrize("ends_first", [0, 1])
async def test_a_suspension_waits_for_a_cancellation_whose_stored_request_has_ended(
    world: World, ends_first: int
):
    """Two API requests are about to cancel a charge. A poll finds the charge paid, and ends both stored requests.

    Both gateway calls are still in progress. The suspension waits until the second call has ended. [D-242, D-171]
    """
    invoice = await issued_invoice(world)
    [charge] = await charges(world)
    account = await account_of(world)
    begun = [await _begin_cancellation(world, account, invoice) for _ in range(2)]
    await move(world, charge, "pay")
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "paid"
    assert await world.sql("SELECT 1 FROM merchant_request") == []

    async with waiting_suspension(world):
        await charge_release.release(world.deps, account, begun.pop(ends_first).reserved)
        await asyncio.sleep(A_WHILE)
        await charge_release.release(world.deps, account, begun.pop().reserved)
        await end_leases(world)  # if the first call ended first, its hold is still stored


async def _begin_cancellation(world: World, account: Account, invoice: Json) -> Begun:
    """Reserve the call of `POST /v1/invoices/{id}/cancel`, but do not send it."""
    draft = AuditDraft(Origin(OPERATOR), INVOICE_CANCEL)
    with world.deps.gateway_requests.places(account.account_id) as places:
        reserve = partial(cancellation._reserve, request=None, invoice_id=UUID(invoice["id"]), places=places)
        begun = await begin(
            world.deps, account, None, reserve, draft=draft, in_progress_for=merchant_requests.IN_PROGRESS_FOR
        )
    assert isinstance(begun, Begun)
    return begun


@pytest.mark.parametrize("stopped", ["monotonic", "real"])
async def test_a_process_that_stood_still_sends_no_cancellation(
    world: World, monkeypatch: pytest.MonkeyPatch, stopped: str
):
    """The process stands still while the account is suspended. During this time, one of the host's two clocks stops:
    the real or the monotonic clock. The other clock shows that it is too late to call the gateway. [D-242, D-27]
    """
    invoice = await issued_invoice(world)
    release = charge_release.release

    async def release_later(
        deps: Deps, account: Account, reserved: Reserved, *, accepted: Container[port.ChargeState]
    ) -> Released | Refused:
        seconds = charge_release.SEND_WITHIN_SECONDS + 1
        if stopped == "real":
            late = replace(reserved, send_before=reserved.send_before - seconds)
        else:
            late = replace(reserved, reserved_at=reserved.reserved_at - timedelta(seconds=seconds))
        await world.sql("UPDATE merchant_request SET in_progress_until = now()")
        await end_leases(world)
        await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)
        return await release(deps, account, late, accepted=accepted)

    monkeypatch.setattr(charge_release, "release", release_later)
    answer = await cancel(world, invoice, key="c")

    assert (answer.status, answer.type) == (409, "engine.invoice_not_cancelable")
    assert "sent nothing" in answer.json["detail"]
    assert [each["status"] for each in await world.sql("SELECT status FROM sandbox_charge")] == ["open"]
    assert await world.sql("SELECT 1 FROM merchant_request") == []
    assert await world.broken() == []


async def test_a_request_that_was_admitted_before_the_suspension_cancels_no_charge(world: World):
    """[D-242, D-27]"""
    invoice = await issued_invoice(world)
    account = await account_of(world)
    await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)
    draft = AuditDraft(Origin(OPERATOR), INVOICE_CANCEL)
    with pytest.raises(EngineError, match="suspended"):
        await cancellation.cancel(world.deps, account, None, UUID(invoice["id"]), draft=draft)
    assert [each["status"] for each in await world.sql("SELECT status FROM sandbox_charge")] == ["open"]


async def test_a_request_that_was_admitted_before_the_suspension_begins_no_other_call(world: World):
    """[D-242, D-31, D-32, D-43]"""
    product = await world.variable_product()
    subscription = await world.enroll(await world.plan(product))
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    connection_id = UUID((await world.connect())["connectionId"])
    account = await account_of(world)
    await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)

    check_new = partial(gateway_connections.check_new, provider="sandbox", credentials={}, settings={})
    changes = {"settings": {"behaviour": "never_pay"}}
    change = partial(gateway_connections.patch, connection_id=connection_id, changes=changes, draft=None)
    for call in (
        partial(price_pull.retry, invoice_id=UUID(invoice["id"]), draft=None),
        partial(pricing_test.call, product_id=UUID(product["id"])),
        check_new,
        change,
    ):
        with pytest.raises(EngineError, match="suspended"):
            await call(world.deps, account)
    assert await world.sql("SELECT 1 FROM pricing_attempt") == []


async def test_a_suspension_waits_for_the_charge_of_an_invoice_that_is_paid_meanwhile(world: World):
    """A worker is about to send the next charge of a reissued invoice. The payer pays the replaced charge first.

    The suspension still waits for the call that sends the next charge. [D-242, D-51]
    """
    invoice = await issued_invoice(world)
    [replaced] = await charges(world)
    assert (await ask(world, invoice, key="r")).status == 200
    account = await load_account(world.deps, world.account_id)
    _, calls = await in_transaction(world.deps, account, issuance._reserve_due, limit=1)
    await move(world, replaced, "pay")
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "paid"

    async with waiting_suspension(world):
        await issuance.call_and_record(world.deps, account, calls)
    made = await world.sql("SELECT status FROM sandbox_charge ORDER BY status")
    assert [each["status"] for each in made] == ["canceled", "paid"]
    assert await world.broken() == []


@pytest.mark.parametrize("fault", [None, "unknown", "timeout_before", "rejected", "server_error"])
async def test_a_suspension_does_not_wait_for_an_answered_call(world: World, fault: str | None):
    """[D-242]"""
    invoice = await ready_invoice(world)
    if fault is not None:
        await queue_fault(world, "create_charge", fault)
    await world.run("issuance")
    assert (await read(world, invoice))["status"] == ("issued" if fault is None else "ready")

    await asyncio.wait_for(suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR), 1)
