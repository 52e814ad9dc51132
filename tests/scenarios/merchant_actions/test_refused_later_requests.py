"""The gateway refuses to cancel a charge for a later request or a repeat, while an earlier request is stored (D-171).

The earlier request is a reissue or a payment, and the gateway's answer to its cancellation was lost.
"""

import pytest

from tests.support.cancellation_steps import around_the_cancellation, die, end_requests, killed
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, pass_time, queue_fault, read
from tests.support.world import Answer, Json, World

REFUSALS = ["rate_limited", "unauthorized", "rejected"]


async def send(world: World, invoice: Json, action: str, *, key: str) -> Answer:
    match action:
        case "reissue":
            return await ask(world, invoice, key=key)
        case "payment":
            return await world.post(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash"}, key=key)
        case _:
            return await cancel(world, invoice)


async def lose_answer(world: World, action: str) -> Json:
    """Return an invoice after a request with the key `a`. The gateway canceled its charge, but the answer was lost."""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_after")
    assert (await send(world, invoice, action, key="a")).status == 409
    return invoice


async def refuse(world: World, invoice: Json, action: str, *, key: str, fault: str = "rate_limited") -> str:
    """Send a request for which the gateway refuses to cancel the charge. Return the `detail` of the API's 409."""
    await queue_fault(world, "cancel_charge", fault)
    answer = await send(world, invoice, action, key=key)
    assert answer.status == 409, answer.body
    return answer.json["detail"]


async def stored_kinds(world: World) -> list[str]:
    """Return the kinds of the stored requests, the oldest first."""
    rows = await world.sql("""
        SELECT CASE WHEN payment_method IS NOT NULL THEN 'reissue' WHEN amount_cents IS NOT NULL THEN 'payment'
            ELSE 'cancellation' END AS kind FROM merchant_request ORDER BY number
    """)
    return [row["kind"] for row in rows]


async def check_continued(world: World, invoice: Json, action: str) -> None:
    """Run the polls. Check that they completed the payment or reissue `action`, and did not cancel the invoice."""
    await pass_time(world, hours=2)
    found = await read(world, invoice)
    stages = [each["status"] for each in found["charges"]]
    if action == "payment":
        assert (found["status"], found["paidCents"], stages) == ("paid", 9990, ["canceled"])
    else:
        assert (found["status"], found["paidCents"], stages) == ("issued", 0, ["canceled", "open"])
    assert await world.events("invoice.canceled") == []
    assert await world.broken() == []


@pytest.mark.parametrize("fault", REFUSALS)
@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_refused_repeat_keeps_the_request(world: World, action: str, fault: str) -> None:
    """The key stays bound to the stored request: the API refuses another request with this key.
    [D-171, D-52, D-51 409, D-131]
    """
    invoice = await lose_answer(world, action)

    detail = await refuse(world, invoice, action, key="a", fault=fault)

    assert "automatically" in detail
    other = await world.post(f"/v1/invoices/{invoice['id']}/reissue", {"installments": 1}, key="a")
    assert (other.status, other.type) == (422, "engine.idempotency_key_reused")
    await check_continued(world, invoice, action)
    assert (await send(world, invoice, action, key="a")).status == 200


@pytest.mark.parametrize("later", ["payment", "reissue", "cancel"])
@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_refused_later_request_does_not_replace_the_request(
    world: World, action: str, later: str
) -> None:
    """[D-171, D-52, D-51 409, D-27]"""
    invoice = await lose_answer(world, action)

    assert "automatically" not in await refuse(world, invoice, later, key="b")

    await check_continued(world, invoice, action)


@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_refused_repeat_keeps_the_request_of_a_process_that_died(world: World, action: str) -> None:
    """[D-171, D-52, D-51 crash]"""
    invoice = await unpaid_invoice(world)
    await killed(send(world, invoice, action, key="a"))
    await end_requests(world)

    await refuse(world, invoice, action, key="a")

    await check_continued(world, invoice, action)


async def test_a_process_that_dies_in_a_repeat_keeps_the_request(world: World) -> None:
    """[D-171, D-52]"""
    invoice = await lose_answer(world, "payment")
    await killed(send(world, invoice, "payment", key="a"), before=die)
    await end_requests(world)
    await check_continued(world, invoice, "payment")


@pytest.mark.parametrize("later", ["payment", "reissue", "cancel"])
@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_poll_before_the_refusal_applies_no_request(world: World, action: str, later: str) -> None:
    """A poll finds the charge canceled before the engine knows that the gateway refuses the later request.

    After the refusal, a poll continues the earlier request. [D-171, D-52, D-27]
    """
    invoice = await lose_answer(world, action)

    async def poll() -> None:
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        assert await world.run("reconciliation") > 0

    with around_the_cancellation(after=poll):
        await refuse(world, invoice, later, key="b")

    await check_continued(world, invoice, action)
