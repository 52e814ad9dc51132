"""Refunds whose answer is lost or late: each refund is made and recorded once, even if a process dies."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import (
    Capabilities,
    Charge,
    RefundRequest,
    RefundState,
    TransientError,
)
from fatura.usecases.payments import refund_calls
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.refund_steps import claim, paid_invoice, refund, refunded_at_gateway, slow, store
from tests.support.sandbox_steps import (
    pass_time,
    queue_fault,
    read,
    reads_held,
    until_waiting,
)
from tests.support.world import Json, World, columns


@pytest.fixture
async def paid(world: World) -> Json:
    return await paid_invoice(world)


@pytest.mark.parametrize(
    ("fault", "made_at_once"),
    [("timeout_before", False), ("timeout_after", True), ("server_error", False), ("rate_limited", False)],
)
async def test_a_refund_without_an_answer_is_finished_once(
    world: World, paid: Json, fault: str, *, made_at_once: bool
) -> None:
    """[D-53 lost answer]"""
    await queue_fault(world, "refund_charge", fault)

    answer = await refund(world, paid, amountCents=4000)

    assert answer.status == 202
    assert columns(answer.json["refunds"], "status", "paymentId", "closedAt") == [("pending", "None", "None")]
    assert bool(await refunded_at_gateway(world)) is made_at_once
    await pass_time(world, minutes=3)
    after = await read(world, paid)
    assert (after["refundedCents"], [each["status"] for each in after["refunds"]]) == (4000, ["done"])
    assert await refunded_at_gateway(world) == [4000]
    assert len(await world.events("invoice.refunded")) == 1
    assert await world.broken() == []


@pytest.mark.parametrize("fault", ["timeout_before", "timeout_after"])
async def test_a_repeat_with_the_same_key_finishes_the_refund(world: World, paid: Json, fault: str) -> None:
    """[D-53 lost answer, D-14]"""
    await queue_fault(world, "refund_charge", fault)
    assert (await refund(world, paid, key="once")).status == 202
    await world.sql("UPDATE refund_request SET next_attempt_at = created_at")

    answer = await refund(world, paid, key="once")

    assert (answer.status, answer.json["refundedCents"]) == (200, 9990)
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert (await refund(world, paid, key="once")).json["refunds"] == answer.json["refunds"]
    assert await refunded_at_gateway(world) == [9990]
    assert await world.broken() == []


async def test_a_repeat_too_soon_makes_no_call(
    world: World, paid: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-53 lost answer]"""
    await queue_fault(world, "refund_charge", "timeout_after")
    await refund(world, paid, key="once")
    monkeypatch.delattr(SandboxGateway, "get_charge")

    assert (await refund(world, paid, key="once")).status == 202


@pytest.mark.parametrize("dies_after", ["storing", "reserving", "the call"])
async def test_a_process_that_dies_leaves_a_refund_that_is_finished_once(
    world: World, paid: Json, dies_after: str
) -> None:
    """[D-53 crash]"""
    account = await load_account(world.deps, world.account_id)
    refund_id = await store(world, account, paid, amount_cents=4000)
    if dies_after != "storing":
        (call,) = await claim(world, account, refund_id)
        if dies_after == "the call":
            await refund_calls._make(world.deps, call)
        assert (await refund(world, paid, amountCents=4000, key="once")).status == 202  # the refund is leased
        await world.sql("UPDATE refund_request SET lease_until = now() - interval '1 second'")

    await pass_time(world, minutes=3)

    after = await read(world, paid)
    assert (after["refundedCents"], [each["status"] for each in after["refunds"]]) == (4000, ["done"])
    assert await refunded_at_gateway(world) == [4000]
    repeat = await refund(world, paid, amountCents=4000, key="once")
    assert (repeat.status, len(repeat.json["refunds"])) == (200, 1)
    assert await refunded_at_gateway(world) == [4000]
    assert await world.broken() == []


@pytest.mark.faults
async def test_a_poll_that_sees_the_refund_first_finishes_it(world: World, paid: Json) -> None:
    """[D-53 once]"""
    await queue_fault(world, "refund_charge", "timeout_after")
    assert (await refund(world, paid)).status == 202
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")

    await world.run("reconciliation")

    after = await read(world, paid)
    assert (after["refundedCents"], [each["status"] for each in after["refunds"]]) == (9990, ["done"])
    assert after["refunds"][0]["paymentId"] == after["payments"][-1]["id"]
    await pass_time(world, days=60)
    assert len(await world.events("invoice.refunded")) == 1
    assert await world.broken() == []


@pytest.mark.parametrize("ends", ["done", "failed"])
async def test_the_gateway_works_on_a_refund_for_days(
    world: World, paid: Json, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-53 pending]"""
    get_charge = SandboxGateway.get_charge
    monkeypatch.setattr(
        SandboxGateway, "refund_charge", slow(RefundState.PENDING, SandboxGateway.refund_charge)
    )
    monkeypatch.setattr(SandboxGateway, "get_charge", slow(RefundState.PENDING, get_charge))
    answer = await refund(world, paid, key="once")
    assert (answer.status, answer.json["refunds"][0]["status"]) == (202, "pending")
    await pass_time(world, days=2)
    assert (await refund(world, paid, key="once")).status == 202

    shown = get_charge if ends == "done" else slow(RefundState.FAILED, get_charge)
    monkeypatch.setattr(SandboxGateway, "get_charge", shown)
    await pass_time(world, hours=2)

    after = await read(world, paid)
    (found,) = after["refunds"]
    assert (found["status"], after["refundedCents"]) == (ends, 9990 if ends == "done" else 0)
    if ends == "failed":
        assert found["error"] == {"code": "failed_at_gateway", "detail": "The payer's bank refuses it."}
        assert len(await world.events("invoice.refund_failed")) == 1
        refused = await refund(world, paid, key="once")
        assert (refused.status, refused.type) == (422, "engine.refund_refused")
        monkeypatch.undo()
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        await world.run("reconciliation")  # the gateway now shows the refund as made
        after = await read(world, paid)
        assert (after["refunds"][0]["status"], after["refundedCents"]) == ("done", 9990)
    assert await world.broken() == []


@pytest.mark.parametrize(("fault", "ends"), [("timeout_before", "failed"), ("timeout_after", "done")])
async def test_a_gateway_that_does_not_deduplicate_is_asked_once(
    world: World, paid: Json, fault: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-53 lookup]"""
    capabilities, asked = SandboxGateway.capabilities, list[UUID]()
    refund_charge = SandboxGateway.refund_charge

    def only_looks_up(gateway: SandboxGateway) -> Capabilities:
        return replace(capabilities(gateway), refunds="lookup")

    async def noted(gateway: SandboxGateway, request: RefundRequest) -> Charge:
        asked.append(request.refund_id)
        return await refund_charge(gateway, request)

    monkeypatch.setattr(SandboxGateway, "capabilities", only_looks_up)
    monkeypatch.setattr(SandboxGateway, "refund_charge", noted)
    await queue_fault(world, "refund_charge", fault)
    assert (await refund(world, paid)).status == 202
    await pass_time(world, minutes=1)
    if ends == "failed":
        assert (await read(world, paid))["refunds"][0]["status"] == "pending"

    await pass_time(world, minutes=5)

    (found,) = (await read(world, paid))["refunds"]
    assert (found["status"], len(asked)) == (ends, 1)
    assert (found["error"] or {}).get("code") == ("not_made" if ends == "failed" else None)
    assert await world.broken() == []


async def test_a_refused_repeat_counts_only_after_look_ups(
    world: World, paid: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway made the refund at the first request, so it refuses the repeat. It does not show the refund yet.
    [D-53 lost answer]
    """
    get_charge = SandboxGateway.get_charge

    async def without_refunds(gateway: SandboxGateway, charge_id: str) -> Charge:
        charge = await get_charge(gateway, charge_id)
        made = {refund.reference for refund in charge.refunds}
        kept = tuple(entry for entry in charge.entries if entry.reference not in made)
        return replace(charge, entries=kept, refunds=())

    monkeypatch.setattr(SandboxGateway, "get_charge", without_refunds)
    await queue_fault(world, "refund_charge", "timeout_after")
    await queue_fault(world, "refund_charge", "rejected", times=1000)
    assert (await refund(world, paid)).status == 202
    await pass_time(world, minutes=1)
    assert (await read(world, paid))["refunds"][0]["status"] == "pending"

    monkeypatch.undo()
    await pass_time(world, minutes=2)

    after = await read(world, paid)
    assert (after["refunds"][0]["status"], after["refundedCents"]) == ("done", 9990)
    assert await refunded_at_gateway(world) == [9990]


async def test_a_refund_during_days_of_failures_is_made_when_they_end(world: World, paid: Json) -> None:
    """[D-53 lost answer, D-55 failing]"""
    await queue_fault(world, "refund_charge", "server_error", times=8)
    assert (await refund(world, paid)).status == 202

    await pass_time(world, days=1)

    assert (await read(world, paid))["refundedCents"] == 9990
    assert await refunded_at_gateway(world) == [9990]


async def test_a_process_that_was_suspended_sends_nothing(world: World, paid: Json) -> None:
    """A process is suspended until it may no longer send the refund, because its lease may have expired.

    Another process sends the refund later. [D-53 crash]
    """
    account = await load_account(world.deps, world.account_id)
    call = await reserved(world, paid)

    await refund_calls._call_and_record_one(world.deps, account, replace(call, send_before=0.0))

    assert await refunded_at_gateway(world) == []
    await pass_time(world, minutes=3)
    assert await refunded_at_gateway(world) == [9990]


async def test_a_late_answer_does_not_change_a_refund_that_another_process_took_over(
    world: World, paid: Json
) -> None:
    """The lease of the first process expires, and another process begins to send the refund.

    Then the first process learns that its own call had no effect. [D-53 crash]
    """
    account = await load_account(world.deps, world.account_id)
    call = await reserved(world, paid)
    await world.sql("UPDATE refund_request SET lease_until = now() - interval '1 second'")
    assert await claim(world, account, call.request.refund_id)

    await in_transaction(world.deps, account, refund_calls._record, call, TransientError("late"))

    (row,) = await world.sql("SELECT stage, lease_until > now() AS is_leased FROM refund_request")
    assert (row["stage"], row["is_leased"]) == ("sending", True)


async def reserved(world: World, invoice: Json) -> refund_calls._Call:
    """Store and lease a refund, as a process does before it calls the gateway."""
    account = await load_account(world.deps, world.account_id)
    (call,) = await claim(world, account, await store(world, account, invoice))
    return call


async def test_a_repeat_after_the_key_expired_makes_no_second_refund(world: World, paid: Json) -> None:
    """[D-53 once]"""
    assert (await refund(world, paid, key="once", amountCents=4000)).status == 200
    await world.sql("DELETE FROM idempotency_key WHERE key = 'once'")

    repeat = await refund(world, paid, key="once", amountCents=4000)

    assert (repeat.status, repeat.json["refundedCents"]) == (200, 4000)
    assert await refunded_at_gateway(world) == [4000]


async def test_the_answer_of_a_refund_shows_one_state(world: World, paid: Json) -> None:
    """While the API reads the rows for its answer, another refund is made. [D-122, D-53]"""
    async with reads_held(world, "pricing_attempt"):
        asked = [asyncio.create_task(refund(world, paid, amountCents=1000))]
        await until_waiting(world)
        asked.append(asyncio.create_task(refund(world, paid, amountCents=2000)))
        await until_waiting(world, statements=2)
    for each in asked:
        answer = await each
        assert answer.status == 200, answer.body
        assert sum(each["amountCents"] for each in answer.json["refunds"]) == answer.json["refundedCents"]
