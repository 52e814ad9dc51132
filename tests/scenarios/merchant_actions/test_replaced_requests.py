"""A suspended process continues an earlier request after a later one. The engine applies the later one (D-171).

The letters in the tests are Idempotency-Keys. A request is *lost* if the gateway's answer to its cancellation was lost.
"""

import asyncio
from contextlib import suppress

import pytest

from tests.scenarios.merchant_actions.test_concurrent_cancellations import overlapping
from tests.scenarios.merchant_actions.test_refused_later_requests import send
from tests.scenarios.merchant_actions.test_request_histories import pay_unsure, poll, show
from tests.support.cancellation_steps import around_the_cancellation, die, end_requests, killed, suspended
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, charges, pass_time, queue_fault
from tests.support.world import Answer, Json, World

PAID = ("paid", 9990, [("canceled", 9990)])
CANCELED = ("canceled", 0, [("canceled", 9990)])


@pytest.fixture
async def invoice(world: World) -> Json:
    return await unpaid_invoice(world)


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("earlier", ["reissue", "cancel"])
@pytest.mark.parametrize("is_promised", [False, True])
async def test_a_payment_whose_process_died_decides(
    world: World, invoice: Json, earlier: str, dies: str, *, is_promised: bool
) -> None:
    """While the earlier request r is suspended, the process of the payment p dies before or after its call.

    Then r continues. With `is_promised`, p was lost before r began, and the process dies while it repeats p.
    [D-171, D-52]
    """
    if is_promised:
        await pay_unsure(world, invoice, "timeout_before", key="p")

    async def pay() -> None:
        request = send(world, invoice, "payment", key="p")
        await (killed(request, before=die) if dies == "before" else killed(request))

    with suspended(world, pay):
        answer = await send(world, invoice, earlier, key="r")
    await world.run("issuance")
    await end_requests(world)
    await pass_time(world, hours=2)
    assert (answer.status, await show(world, invoice)) == (409, PAID)
    assert await world.broken() == []


@pytest.mark.parametrize("fault", ["timeout_after", "timeout_before"])
@pytest.mark.parametrize("earlier", ["reissue", "payment"])
async def test_a_lost_cancellation_decides(world: World, invoice: Json, earlier: str, fault: str) -> None:
    """[D-171, D-27]"""

    async def cancel_invoice() -> None:
        await queue_fault(world, "cancel_charge", fault)
        assert (await cancel(world, invoice, key="c")).status == 409

    with suspended(world, cancel_invoice):
        answer = await send(world, invoice, earlier, key="r")
    await pass_time(world, hours=1)
    assert (answer.status, await show(world, invoice)) == (409, CANCELED)
    assert (await cancel(world, invoice, key="c")).status == 200
    assert await world.broken() == []


async def test_the_late_effect_of_a_lost_cancellation_is_found_soon(world: World, invoice: Json) -> None:
    """The gateway cancels the charge eight minutes after the answer was lost. [D-171, D-27]"""
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await cancel(world, invoice)).status == 409
    await pass_time(world, minutes=8)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    await pass_time(world, minutes=8)
    assert await show(world, invoice) == CANCELED


@pytest.mark.parametrize("ending", ["dies", "is polled"])
async def test_a_lost_cancellation_does_not_remove_its_running_repeat(
    world: World, invoice: Json, ending: str
) -> None:
    """The first attempt of the cancellation c is suspended. The process of the reissue r dies. Then c is repeated.

    While the repeat waits for the gateway, the answer to the first attempt is lost. [D-171, D-27]
    """
    repeat_calls, first_done = asyncio.Event(), asyncio.Event()
    repeats: list[asyncio.Task[Answer]] = []

    async def die_and_repeat() -> None:
        await killed(ask(world, invoice, key="r"), before=die)
        await end_requests(world)
        with around_the_cancellation(before=wait):
            repeats.append(asyncio.create_task(cancel(world, invoice, key="c")))
            await repeat_calls.wait()
        await queue_fault(world, "cancel_charge", "timeout_before")

    async def wait() -> None:
        repeat_calls.set()
        await first_done.wait()

    async def end() -> None:
        if first_done.is_set():
            await (die() if ending == "dies" else poll(world))

    with suspended(world, die_and_repeat, after=end):
        assert (await cancel(world, invoice, key="c")).status == 409
        first_done.set()
        with suppress(asyncio.CancelledError):
            await repeats[0]
    await end_requests(world)
    await pass_time(world, hours=2)
    assert await show(world, invoice) == CANCELED
    assert await world.broken() == []


async def test_a_replaced_cancellation_does_not_cancel_the_reissued_invoice(
    world: World, invoice: Json
) -> None:
    """While the cancellation is suspended, the reissue r is lost, and a poll applies r. [D-171, D-27, D-51]"""

    async def reissue() -> None:
        await queue_fault(world, "cancel_charge", "timeout_after")
        assert "reissued automatically" in (await ask(world, invoice, key="r")).json["detail"]
        await poll(world)
        assert (await show(world, invoice))[0] == "ready"

    with suspended(world, reissue):
        answer = await cancel(world, invoice)
    assert (answer.status, "reissued" in answer.json["detail"]) == (409, True)
    await pass_time(world, hours=2)
    assert await show(world, invoice) == ("issued", 0, [("canceled", 9990), ("open", 9990)])


@pytest.mark.parametrize("earlier", ["reissue", "cancel"])
async def test_a_replaced_request_is_polled_soon(world: World, invoice: Json, earlier: str) -> None:
    """While the request r is suspended for 13 hours, the payment p is lost. By then, polls are hours apart.

    After r continues, a poll follows within a minute. [D-171]
    """

    async def pay() -> None:
        await pay_unsure(world, invoice, "timeout_before", key="p")
        await pass_time(world, hours=13)

    with suspended(world, pay):
        answer = await send(world, invoice, earlier, key="r")
    assert (answer.status, answer.headers["retry-after"]) == (409, "60")
    await pass_time(world, minutes=1)
    assert await show(world, invoice) == PAID


async def test_a_replaced_request_keeps_its_key(world: World, invoice: Json) -> None:
    """The payment p is lost and replaces the suspended reissue r. The API still refuses another request with r's key.
    [D-14, D-171]
    """

    async def pay() -> None:
        await pay_unsure(world, invoice, "timeout_before", key="p")

    with suspended(world, pay):
        assert (await ask(world, invoice, key="r")).status == 409
    other = await ask(world, invoice, key="r", installments=1)
    assert (other.status, other.type) == (422, "engine.idempotency_key_reused")


@pytest.mark.parametrize("earlier", ["payment", "reissue"])
async def test_a_replaced_request_applies_if_the_gateway_refuses_the_later_one(
    world: World, invoice: Json, earlier: str
) -> None:
    """While the later request waits for the gateway, the earlier request cancels the charge.

    Then the gateway refuses the later request. [D-171, D-52, D-51]
    """
    first_calls, first_done = asyncio.Event(), asyncio.Event()
    with overlapping(first_calls, first_done):
        first = asyncio.create_task(send(world, invoice, earlier, key="a"))
        await first_calls.wait()
        await end_requests(world)
        second = asyncio.create_task(send(world, invoice, "reissue", key="b"))
        answer = await first
        assert (answer.status, "unless the gateway refuses that one" in answer.json["detail"]) == (409, True)
        await queue_fault(world, "cancel_charge", "rate_limited")
        first_done.set()
        assert (await second).status == 409
    await pass_time(world, minutes=5)
    shown = await show(world, invoice)
    assert shown == (PAID if earlier == "payment" else ("issued", 0, [("canceled", 9990), ("open", 9990)]))
    assert (await send(world, invoice, earlier, key="a")).status == 200


async def test_of_two_payments_the_later_one_is_recorded(world: World, invoice: Json) -> None:
    """While the payment p is suspended, the later payment q is lost. The engine promises to record q. Then p continues.
    [D-52]
    """

    async def pay() -> None:
        await pay_unsure(world, invoice, "timeout_after", key="q")

    with suspended(world, pay):
        assert (await send(world, invoice, "payment", key="p")).status == 409
    await pass_time(world, hours=1)
    assert await show(world, invoice) == PAID
    assert (await send(world, invoice, "payment", key="q")).status == 200
    assert (await send(world, invoice, "payment", key="p")).status == 409


async def test_a_repeated_payment_does_not_overtake_a_payment_in_progress(
    world: World, invoice: Json
) -> None:
    """[D-171, D-52]"""
    await pay_unsure(world, invoice, "timeout_before", key="p")
    repeats: list[Answer] = []

    async def repeat() -> None:
        repeats.append(await send(world, invoice, "payment", key="p"))

    with around_the_cancellation(before=repeat):
        assert (await send(world, invoice, "payment", key="q")).status == 200
    assert [(each.status, each.type) for each in repeats] == [(409, "engine.invoice_not_payable")]
    assert await show(world, invoice) == PAID


@pytest.mark.parametrize("action", ["cancel", "payment"])
async def test_a_cancellation_without_effect_is_repeated(world: World, invoice: Json, action: str) -> None:
    """The gateway confirms the cancellation, but the charge stays payable. [D-27, D-52, D-125]"""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")

    async def reopen() -> None:
        await world.sql("UPDATE sandbox_charge SET status = 'open'")

    with around_the_cancellation(after=reopen):
        assert (await send(world, invoice, action, key="a")).status == 200
    await pass_time(world, minutes=15)
    assert [each["status"] for each in await charges(world)] == ["canceled"]
