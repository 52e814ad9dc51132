"""Several requests ask the gateway to cancel the same charge at the same time (D-171).

In most tests, a reissue or a payment is already stored, because the gateway's answer to its cancellation was lost.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from fatura.usecases.merchant_actions import charge_release
from tests.scenarios.merchant_actions.test_refused_later_requests import (
    check_continued,
    lose_answer,
    send,
    stored_kinds,
)
from tests.support.cancellation_steps import around_the_cancellation, end_requests
from tests.support.refund_steps import pay, refund
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, issued_invoice, pass_time, queue_fault, read
from tests.support.world import Answer, Json, World


@contextmanager
def overlapping(first_calls: asyncio.Event, first_done: asyncio.Event) -> Generator[None]:
    """Delay the first cancellation until the second cancellation begins. Delay the second until `first_done` is set.

    Set `first_calls` when the first cancellation begins.
    """
    original, count, second_calls = charge_release.cancel, [0], asyncio.Event()

    async def ordered(*args: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == 1:
            first_calls.set()
            await second_calls.wait()
        else:
            second_calls.set()
            await first_done.wait()
        return await original(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charge_release, "cancel", ordered)
        yield


@pytest.mark.parametrize("later", ["payment", "reissue", "cancel"])
@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_two_refused_requests_keep_the_stored_request(world: World, action: str, later: str) -> None:
    """[D-171]"""
    invoice = await lose_answer(world, action)
    await queue_fault(world, "cancel_charge", "rate_limited", times=2)
    first_calls, first_done = asyncio.Event(), asyncio.Event()
    with overlapping(first_calls, first_done):
        first = asyncio.create_task(cancel(world, invoice))
        await first_calls.wait()
        second = asyncio.create_task(send(world, invoice, later, key="b"))
        assert (await first).status == 409
        first_done.set()
        assert (await second).status == 409
    await check_continued(world, invoice, action)


@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_refused_request_of_a_suspended_process_is_not_applied(world: World, action: str) -> None:
    """The process of one reissue is suspended for over 30 s, so Fatura accepts another reissue. The gateway refuses
    both. [D-171, D-51, D-52]
    """
    invoice = await lose_answer(world, action)
    await queue_fault(world, "cancel_charge", "rate_limited", times=2)
    first_calls, first_done = asyncio.Event(), asyncio.Event()
    with overlapping(first_calls, first_done):
        first = asyncio.create_task(send(world, invoice, "reissue", key="b"))
        await first_calls.wait()
        await end_requests(world)
        second = asyncio.create_task(send(world, invoice, "reissue", key="c"))
        assert (await first).status == 409
        first_done.set()
        assert (await second).status == 409
    await check_continued(world, invoice, action)


@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_suspended_attempt_does_not_drop_the_request_of_its_repeat(world: World, action: str) -> None:
    """While a request's first attempt is suspended, the client repeats the request.

    The repeat cancels the charge, but the gateway's answer is lost. Then the gateway refuses the first attempt's call.
    [D-171]
    """
    invoice = await unpaid_invoice(world)
    attempts = 0

    async def suspended() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await end_requests(world)
            await queue_fault(world, "cancel_charge", "timeout_after")
            repeat = await send(world, invoice, action, key="a")
            assert (repeat.status, "automatically" in repeat.json["detail"]) == (409, True)
            await queue_fault(world, "cancel_charge", "rate_limited")

    with around_the_cancellation(before=suspended):
        assert (await send(world, invoice, action, key="a")).status == 409
    await check_continued(world, invoice, action)


@pytest.mark.parametrize("later", ["reissue", "cancel"])
async def test_a_part_payment_is_refused_while_a_payment_is_stored(world: World, later: str) -> None:
    """A payment of the total is stored. If the API accepted a part payment too, the engine could record both.
    [D-52, D-171]
    """
    invoice = await unpaid_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/payments"
    await queue_fault(world, "cancel_charge", "timeout_after")
    assert (await world.post(path, {"method": "cash", "amountCents": 9990}, key="a")).status == 409
    await queue_fault(world, "cancel_charge", "rate_limited")
    answers: list[Answer] = []

    async def pay_part() -> None:
        await end_requests(world)
        answers.append(await world.post(path, {"method": "cash", "amountCents": 1000}, key="part"))

    with around_the_cancellation(before=pay_part):
        assert (await send(world, invoice, later, key="b")).status == 409
    assert answers[0].status == 409
    await check_continued(world, invoice, "payment")


@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_refund_is_refused_while_a_request_is_stored(world: World, action: str) -> None:
    """A payment or reissue of the open amount is stored. A refund would change this amount. [D-151, D-171]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pay(world, invoice, amountCents=4000)
    await queue_fault(world, "cancel_charge", "timeout_after")
    assert (await send(world, invoice, action, key="a")).status == 409
    await queue_fault(world, "cancel_charge", "rate_limited")
    answers: list[Answer] = []

    async def ask_for_refund() -> None:
        answers.append(await refund(world, invoice))

    with around_the_cancellation(before=ask_for_refund):
        assert (await cancel(world, invoice)).status == 409
    assert answers[0].status == 409
    await pass_time(world, hours=2)
    found = await read(world, invoice)
    if action == "payment":
        assert (found["status"], found["paidCents"]) == ("paid", 9990)
    else:
        assert [each["amountCents"] for each in found["charges"]] == [9990, 5990]
    assert await world.broken() == []


async def test_a_request_whose_answer_was_lost_replaces_the_earlier_ones(world: World) -> None:
    """[D-171]"""
    invoice = await lose_answer(world, "payment")
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await ask(world, invoice, key="b")).status == 409
    await check_continued(world, invoice, "reissue")


async def test_a_cancellation_whose_answer_was_lost_replaces_the_earlier_requests(world: World) -> None:
    """[D-171, D-27]"""
    invoice = await lose_answer(world, "reissue")
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await cancel(world, invoice)).status == 409
    assert await stored_kinds(world) == ["reissue", "cancellation"]
    await pass_time(world, hours=2)
    found: Json = await read(world, invoice)
    assert (found["status"], found["paidCents"], await stored_kinds(world)) == ("canceled", 0, [])
    assert await world.broken() == []


@pytest.mark.parametrize("later", ["payment", "reissue", "cancel"])
async def test_a_request_of_a_host_with_a_wrong_clock_blocks_no_other(world: World, later: str) -> None:
    """The clock of the host that stored the reissue was 40 days ahead. [D-5, D-171]"""
    invoice = await lose_answer(world, "reissue")
    await world.sql("UPDATE merchant_request SET in_progress_until = in_progress_until + interval '40 days'")
    await world.run("reconciliation")  # the lane corrects the time, which is too far ahead
    await end_requests(world)

    answer = await send(world, invoice, later, key="b")

    assert answer.status in {200, 201}, answer.body
    assert await world.broken() == []
