"""Longer histories of requests that cancel a charge: repeats, suspended and dead processes, and lost answers (D-171).

The letters in the tests are Idempotency-Keys. A request is *lost* if the gateway's answer to its cancellation was lost.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState
from tests.scenarios.merchant_actions.test_concurrent_cancellations import overlapping
from tests.scenarios.merchant_actions.test_refused_later_requests import lose_answer, send, stored_kinds
from tests.support.cancellation_steps import around_the_cancellation, die, end_requests, killed
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import cancel, issued_invoice, pass_time, queue_fault, read
from tests.support.world import Answer, Json, World


async def poll(world: World) -> None:
    """Poll the charges of all invoices that are not `ready`, as if a webhook had named the charges."""
    await world.sql("UPDATE invoice SET next_attempt_at = created_at WHERE status <> 'ready'")
    assert await world.run("reconciliation") > 0


async def show(world: World, invoice: Json) -> tuple[Any, ...]:
    """Return the invoice's status, its paid cents, and the status and amount of each charge."""
    found = await read(world, invoice)
    return (
        found["status"],
        found["paidCents"],
        [(each["status"], each["amountCents"]) for each in found["charges"]],
    )


async def pay_unsure(world: World, invoice: Json, fault: str, *, key: str) -> None:
    """Ask for a payment. The gateway's answer is lost, so the engine promises to record the payment later."""
    await queue_fault(world, "cancel_charge", fault)
    answer = await send(world, invoice, "payment", key=key)
    assert answer.status == 409
    assert "the payment is recorded automatically" in answer.json["detail"]


@pytest.mark.parametrize("dead", ["none", "reissue", "cancel"])
async def test_a_repeated_payment_is_newer_than_a_dead_request(world: World, dead: str) -> None:
    """The payment `a` is lost. The process of the request `b` dies before its call. The repeat of `a` is lost too.

    [D-171, D-52]
    """
    invoice = await unpaid_invoice(world)
    await pay_unsure(world, invoice, "timeout_before", key="a")
    if dead != "none":
        await killed(send(world, invoice, dead, key="b"), before=die)
        await end_requests(world)
    await pay_unsure(world, invoice, "timeout_after", key="a")
    await pass_time(world, hours=2)
    assert (await show(world, invoice)) == ("paid", 9990, [("canceled", 9990)])
    assert await world.broken() == []


@pytest.mark.parametrize("dead", ["none", "reissue", "cancel"])
async def test_a_poll_during_a_repeat_does_not_apply_a_dead_request(world: World, dead: str) -> None:
    """The payment `a` is lost. The process of the request `b` dies. A poll runs while the client repeats `a`.

    [D-171, D-52]
    """
    invoice = await unpaid_invoice(world)
    await pay_unsure(world, invoice, "timeout_before", key="a")
    if dead != "none":
        await killed(send(world, invoice, dead, key="b"), before=die)
        await end_requests(world)

    async def webhook() -> None:
        await poll(world)
        await world.run("issuance")

    with around_the_cancellation(after=webhook):
        answer = await send(world, invoice, "payment", key="a")
    shown = await show(world, invoice)
    assert (answer.status, shown) == (200, ("paid", 9990, [("canceled", 9990)])), (answer.json, shown)
    assert await world.broken() == []


async def test_a_lost_cancellation_does_not_remove_the_running_repeat_of_a_payment(world: World) -> None:
    """[D-171, D-52]"""
    invoice = await unpaid_invoice(world)
    await pay_unsure(world, invoice, "timeout_before", key="a")
    await queue_fault(world, "cancel_charge", "timeout_before")
    await queue_fault(world, "cancel_charge", "timeout_after")
    first_calls, first_done = asyncio.Event(), asyncio.Event()
    with overlapping(first_calls, first_done):
        first = asyncio.create_task(cancel(world, invoice))
        await first_calls.wait()
        second = asyncio.create_task(send(world, invoice, "payment", key="a"))
        assert (await first).status == 409
        first_done.set()
        answer = await second
    assert answer.status == 409
    assert "the payment is recorded automatically" in answer.json["detail"]
    await pass_time(world, hours=2)
    assert (await show(world, invoice)) == ("paid", 9990, [("canceled", 9990)])


@pytest.mark.parametrize("resumes", [False, True])
async def test_a_suspended_reissue_does_not_remove_a_payment_of_the_next_charge(
    world: World, *, resumes: bool
) -> None:
    """While the process of the reissue b is suspended, a poll applies b. Then the payment p, which cancels the next
    charge, is lost. Finally, the process of b calls the gateway about the first charge. [D-171, D-52]
    """
    invoice = await lose_answer(world, "reissue")
    calls = 0

    async def suspended() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return
        await end_requests(world)
        await poll(world)
        await world.run("issuance")
        assert (await show(world, invoice)) == ("issued", 0, [("canceled", 9990), ("open", 9990)])
        await pay_unsure(world, invoice, "timeout_after", key="p")
        if resumes:
            await queue_fault(world, "cancel_charge", "timeout_before")

    with around_the_cancellation(before=suspended):
        await ask(world, invoice, key="b")
    await pass_time(world, hours=2)
    assert (await show(world, invoice)) == ("paid", 9990, [("canceled", 9990), ("canceled", 9990)])
    assert await world.broken() == []


@pytest.mark.parametrize("resumes", [False, True])
async def test_a_suspended_reissue_does_not_remove_a_later_payment_of_the_same_charge(
    world: World, *, resumes: bool
) -> None:
    """The reissue a is lost, the process of the reissue b is suspended, and a cancellation is lost.

    Then the payment p is lost, and replaces all three. Finally, the process of b dies, or b is lost. [D-171, D-52]
    """
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await ask(world, invoice, key="a")).status == 409
    calls = 0

    async def suspended() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return
        await end_requests(world)
        await queue_fault(world, "cancel_charge", "timeout_before")
        assert (await cancel(world, invoice)).status == 409
        assert await stored_kinds(world) == ["reissue", "reissue", "cancellation"]
        await pay_unsure(world, invoice, "timeout_after", key="p")
        assert await stored_kinds(world) == ["payment"]
        if resumes:
            await queue_fault(world, "cancel_charge", "timeout_before")
        else:
            await die()

    with around_the_cancellation(before=suspended), suppress(asyncio.CancelledError):
        await ask(world, invoice, key="b")
    await pass_time(world, hours=2)
    assert (await show(world, invoice)) == ("paid", 9990, [("canceled", 9990)])
    assert await world.broken() == []


@pytest.mark.parametrize("later", ["none", "refused", "dead"])
async def test_a_dead_cancellation_does_not_drop_the_payment_of_an_expired_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """The payment a is lost, and the charge expires. A cancellation is refused, or its process dies.

    The engine does not apply a cancellation of the invoice to an expired charge. [D-171, D-27, D-52]
    """
    invoice = await unpaid_invoice(world)
    await pay_unsure(world, invoice, "timeout_before", key="a")
    get_charge = SandboxGateway.get_charge

    async def expired(self: SandboxGateway, charge_id: str) -> Charge:
        return replace(await get_charge(self, charge_id), state=ChargeState.EXPIRED)

    if later == "dead":
        await killed(cancel(world, invoice), before=die)
        await end_requests(world)
    monkeypatch.setattr(SandboxGateway, "get_charge", expired)
    monkeypatch.setattr(SandboxGateway, "cancel_charge", expired)
    if later == "refused":
        assert (await cancel(world, invoice)).status == 409
    await pass_time(world, hours=2)
    assert (await show(world, invoice)) == ("paid", 9990, [("expired", 9990)])


@pytest.mark.parametrize("is_repeated", [False, True])
async def test_a_repeat_does_not_lower_the_stored_payment(world: World, *, is_repeated: bool) -> None:
    """The payment a is lost. It named no amount, so Fatura stored the 9990 cents that were open at that time.

    Then the payer pays 4000 cents, which are refunded later. [D-52]
    """
    invoice = await unpaid_invoice(world)
    gateway_id = invoice["gatewayInvoiceId"]
    await pay_unsure(world, invoice, "timeout_before", key="a")
    await world.made(f"/v1/sandbox/charges/{gateway_id}/pay", {"amountCents": 4000})
    await world.run("reconciliation")
    assert (await read(world, invoice))["paidCents"] == 4000
    if is_repeated:
        await pay_unsure(world, invoice, "timeout_before", key="a")
    await world.made(f"/v1/sandbox/charges/{gateway_id}/refund", {"amountCents": 4000})
    await world.run("reconciliation")
    await world.made(f"/v1/sandbox/charges/{gateway_id}/cancel")
    await pass_time(world, hours=2)
    assert (await show(world, invoice)) == ("paid", 13990, [("canceled", 9990)])
    assert await world.broken() == []


@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_request_that_a_poll_has_applied_is_not_answered_as_refused(
    world: World, action: str
) -> None:
    """Before the request calls the gateway, a poll finds the charge canceled and applies the request.

    Then the gateway refuses the call. [D-51, D-52]
    """
    invoice = await unpaid_invoice(world)

    async def suspended() -> None:
        await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/cancel")
        await poll(world)
        await queue_fault(world, "cancel_charge", "rate_limited")

    with around_the_cancellation(before=suspended):
        answer = await send(world, invoice, action, key="a")
    found = await read(world, invoice)
    changed = (found["status"], found["paidCents"], len(found["charges"])) != ("canceled", 0, 1)
    assert answer.status == (200 if changed else 409), (
        answer.status,
        answer.json["detail"],
        await show(world, invoice),
    )


async def test_a_replaced_payment_is_not_promised(world: World) -> None:
    """A 409 promises to record a waiting payment only if the payment will be recorded.

    Here, a reissue replaces the charge while the process of the payment is suspended. Then the gateway's answer to this
    process is lost. [D-52, D-171]
    """
    invoice = await unpaid_invoice(world)
    calls = 0

    async def suspended() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await end_requests(world)
            assert (await ask(world, invoice, key="r")).status == 200
            await world.run("issuance")
            await queue_fault(world, "cancel_charge", "timeout_before")

    with around_the_cancellation(before=suspended):
        answer = await send(world, invoice, "payment", key="p")
    assert answer.status == 409
    await pass_time(world, hours=2)
    shown = await show(world, invoice)
    is_promised = (
        "If the charge turns out to be canceled, the payment is recorded automatically"
        in answer.json["detail"]
    )
    assert not is_promised or shown[0] == "paid", shown


@pytest.mark.parametrize("action", ["reissue", "cancel"])
@pytest.mark.parametrize("resumes", [False, True])
async def test_a_replaced_request_is_not_completed(world: World, action: str, *, resumes: bool) -> None:
    """The process of the request r is suspended for over 30 s. The payment p is lost and replaces r. [D-171]"""
    invoice = await unpaid_invoice(world)
    calls = 0

    async def suspended() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return
        await end_requests(world)
        await pay_unsure(world, invoice, "timeout_after", key="p")
        if not resumes:
            await queue_fault(world, "cancel_charge", "rate_limited")

    with around_the_cancellation(before=suspended):
        answer = await send(world, invoice, action, key="r")
    await pass_time(world, hours=2)
    shown = await show(world, invoice)
    assert shown == ("paid", 9990, [("canceled", 9990)]), (answer.status, shown)
    assert await world.broken() == []


async def test_a_cancellation_begun_before_an_unsure_payment(world: World) -> None:
    """The payment p begins after the cancellation, and is lost. Then the cancellation succeeds. [D-171, D-52]"""
    invoice = await unpaid_invoice(world)

    calls = 0

    async def between() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await pay_unsure(world, invoice, "timeout_before", key="p")

    with around_the_cancellation(before=between):
        answer = await cancel(world, invoice)
    await pass_time(world, hours=2)
    assert (answer.status, (await show(world, invoice))[:2]) in {
        (409, ("paid", 9990)),
        (200, ("paid", 9990)),
    }, (
        answer.status,
        await show(world, invoice),
    )


async def test_a_refused_cancellation_does_not_free_the_key_of_its_repeat(world: World) -> None:
    """[D-14]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice, other = await issued_invoice(world), await issued_invoice(world)
    answers: list[Answer] = []
    calls = 0

    async def between() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            # The first request is no longer in progress, and a repeat with the same key begins.
            await end_requests(world)
            repeat = asyncio.create_task(cancel(world, invoice, key="k"))
            tasks.append(repeat)
            await repeat_calls.wait()
            await queue_fault(world, "cancel_charge", "rate_limited")
        elif calls == 2:
            repeat_calls.set()
            await first_done.wait()

    tasks: list[asyncio.Task[Answer]] = []
    repeat_calls, first_done = asyncio.Event(), asyncio.Event()
    with around_the_cancellation(before=between):
        assert (await cancel(world, invoice, key="k")).status == 409
        answers.append(await cancel(world, other, key="k"))
        first_done.set()
        answers.append(await tasks[0])
    await pass_time(world, hours=2)
    canceled = [(await read(world, each))["status"] for each in (invoice, other)]
    assert canceled.count("canceled") < 2, (
        canceled,
        [(each.status, each.json.get("type")) for each in answers],
    )


async def test_a_restore_applies_the_newest_request(world: World) -> None:
    """The backup has a lost payment and a newer reissue. The gateway already has the charge of the reissue.
    [D-171, D-123]
    """
    invoice = await unpaid_invoice(world)
    total = invoice["totalCents"]
    successor = (await create_unmatched_charge(world, UUID(invoice["id"]), total, attempt=2)).charge_id
    await pay_unsure(world, invoice, "timeout_before", key="a")
    await killed(send(world, invoice, "reissue", key="b"))
    await end_requests(world)
    await world.made(f"/v1/sandbox/charges/{successor}/pay")
    await compare(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await pass_time(world, hours=1)
    shown = await show(world, invoice)
    assert shown[:2] == ("paid", total)
