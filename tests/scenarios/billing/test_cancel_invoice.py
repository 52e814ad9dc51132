"""Cancel invoices (D-27).

If the invoice has a charge, the gateway must cancel the charge first. Otherwise, Fatura calls no gateway.
"""

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.support.cancellation_steps import around_the_cancellation, die, end_requests, killed
from tests.support.expect import problem
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import (
    cancel,
    cancel_refused,
    charges,
    connection_id,
    issued_invoice,
    move,
    now,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    table_held,
    until_waiting,
)
from tests.support.world import Answer, Json, World, columns, plan_body


async def draft_invoice(world: World) -> Json:
    """Return a draft invoice. The price endpoint of its variable item has not been called yet."""
    subscription = await world.enroll(await world.plan(await world.product(), await world.variable_product()))
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    assert invoice["status"] == "draft"
    return invoice


@pytest.mark.parametrize("status", ["draft", "awaiting_value", "ready"])
async def test_an_invoice_without_a_charge_is_canceled_at_once(world: World, status: str):
    """[D-27, D-129]"""
    invoice = await (ready_invoice(world) if status == "ready" else draft_invoice(world))
    if status == "awaiting_value":
        await world.sql("UPDATE invoice SET status = 'awaiting_value' WHERE status = 'draft'")
        await world.sql(
            "UPDATE account_counter SET invoices_draft = invoices_draft - 1,"
            " invoices_awaiting_value = invoices_awaiting_value + 1"
        )

    answer = await cancel(world, invoice)

    assert answer.status == 200
    assert answer.json == await read(world, invoice)
    assert (answer.json["status"], answer.json["totalCents"]) == ("canceled", invoice["totalCents"])
    [event] = await world.events("invoice.canceled")
    assert (event["data"]["invoice"]["id"], event["data"]["invoice"]["status"]) == (invoice["id"], "canceled")
    assert invoice["canceledAt"] is None
    assert event["createdAt"] == event["data"]["invoice"]["canceledAt"] == answer.json["canceledAt"]
    await pass_time(world, days=5)
    assert (await read(world, invoice))["status"] == "canceled"
    assert await charges(world) == []
    assert (await world.get("/v1/invoices?status=canceled")).json["pagination"]["totalRecords"] == 1
    assert await world.broken() == []


async def test_canceling_an_invoice_does_not_end_its_subscription(world: World):
    """[D-27]"""
    subscription = await world.enroll(await world.plan())
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    await cancel(world, invoice)
    await world.advance(days=40)
    assert columns(await world.invoices(subscription), "cycle", "status") == [
        ("1", "canceled"),
        ("2", "paid"),
    ]


@pytest.mark.parametrize("status", ["issued", "overdue"])
async def test_canceling_an_invoice_cancels_its_charge_at_the_gateway(world: World, status: str):
    """[D-27 charge]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    if status == "overdue":
        await pass_time(world, days=20)
        assert (await read(world, invoice))["status"] == "overdue"

    answer = await cancel(world, invoice)

    assert (answer.status, answer.json["status"]) == (200, "canceled")
    assert answer.json["gatewayInvoiceId"] == invoice["gatewayInvoiceId"]
    [charge] = await charges(world)
    assert charge["status"] == "canceled"
    assert len(await world.events("invoice.canceled")) == 1
    await pass_time(world, days=5)
    assert (await read(world, invoice))["status"] == "canceled"
    assert await world.broken() == []


async def test_a_charge_already_canceled_at_the_gateway_counts_as_confirmed(world: World):
    """[D-27 charge]"""
    invoice = await issued_invoice(world)
    await move(world, (await charges(world))[0], "cancel")
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    await world.run()
    assert len(await world.events("invoice.canceled")) == 1


async def test_an_inactive_connection_still_cancels_its_charges(world: World):
    """[D-27 charge]"""
    invoice = await issued_invoice(world)
    await patch_connection(world, active=False)
    assert (await cancel(world, invoice)).json["status"] == "canceled"


async def test_after_a_crash_before_recording_polling_cancels_the_invoice(world: World):
    """[D-27 charge]"""
    invoice = await issued_invoice(world)
    async with table_held(world, "account_counter"):
        dying = asyncio.create_task(cancel(world, invoice))
        await until_waiting(world)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    assert (await read(world, invoice))["status"] == "issued"
    assert [each["status"] for each in await charges(world)] == ["canceled"]

    await pass_time(world, seconds=40)

    assert (await read(world, invoice))["status"] == "canceled"
    assert len(await world.events("invoice.canceled")) == 1


async def test_a_cancellation_that_polling_recorded_first_succeeds(world: World):
    """The request cancels the charge at the gateway, but a poll records the cancellation before the request does.
    [D-27 charge]
    """
    invoice = await issued_invoice(world)

    async def poll() -> None:
        await pass_time(world, seconds=40)
        assert len(await world.events("invoice.canceled")) == 1

    with around_the_cancellation(after=poll):
        assert (await cancel(world, invoice)).json["status"] == "canceled"
    assert len(await world.events("invoice.canceled")) == 1
    assert "canceled already" in await cancel_refused(world, invoice)


async def test_a_key_in_use_cancels_no_other_invoice(world: World):
    """While a cancellation waits for the gateway, a client cancels another invoice with the same Idempotency-Key.

    [D-14, D-27 charge]
    """
    invoice, other = await unpaid_invoice(world), await issued_invoice(world)
    asked = list[asyncio.Task[Answer]]()

    async def ask_for_other() -> None:
        if not asked:
            asked.append(asyncio.create_task(cancel(world, other, key="once")))
            await asyncio.wait(asked)

    with around_the_cancellation(before=ask_for_other):
        first = await cancel(world, invoice, key="once")

    assert (first.status, first.json["status"]) == (200, "canceled")
    assert problem(asked[0].result())[:2] == (422, "engine.idempotency_key_reused")
    await pass_time(world, hours=2)
    assert (await read(world, other))["status"] == "issued"
    assert len(await world.events("invoice.canceled")) == 1
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.parametrize("is_polled", [False, True])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_repeat_continues_the_cancellation_of_a_process_that_died(
    world: World, moment: str, *, is_polled: bool
):
    """[D-14, D-27 charge]"""
    invoice = await unpaid_invoice(world)
    await killed(cancel(world, invoice, key="once"), **{moment: die})
    early = await cancel(world, invoice, key="once")
    assert problem(early) == (409, "engine.idempotency_in_progress", None)
    await end_requests(world)
    if is_polled:
        await pass_time(world, minutes=2)

    repeats = [await cancel(world, invoice, key="once") for _ in range(2)]

    assert [(each.status, each.json["status"]) for each in repeats] == [(200, "canceled")] * 2
    assert repeats[0].body == repeats[1].body
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert len(await world.events("invoice.canceled")) == 1
    assert problem(await cancel(world, invoice))[:2] == (409, "engine.invoice_not_cancelable")
    assert await world.broken() == []


async def test_a_repeat_with_its_key_is_replayed(world: World):
    """[D-27, D-14]"""
    invoice = await issued_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await cancel(world, invoice, key="k")).status == 409, "refusals are not stored"
    first, again = [await cancel(world, invoice, key="k") for _ in range(2)]
    assert (first.status, again.status, again.body) == (200, 200, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert (await cancel(world, invoice)).status == 409
    other = await ready_invoice(world)
    assert problem(await cancel(world, other, key="k"))[:2] == (422, "engine.idempotency_key_reused")


@pytest.mark.parametrize("with_charge", [True, False])
async def test_concurrent_cancellations_emit_one_event(world: World, *, with_charge: bool):
    """[D-27, D-27 charge]"""
    invoice = await (issued_invoice if with_charge else ready_invoice)(world)
    answers = await asyncio.gather(
        *(cancel(world, invoice) for _ in range(8)), *(world.run() for _ in (1, 2))
    )
    statuses = {answer.status for answer in answers[:8] if isinstance(answer, Answer)}
    assert 200 in statuses or not with_charge
    assert statuses <= {200, 409}
    await world.run()
    final = (await read(world, invoice))["status"]
    assert final in ({"canceled"} if with_charge else {"canceled", "issued"})
    assert len(await world.events("invoice.canceled")) == (final == "canceled")
    assert len(await world.events("invoice.issued")) == (with_charge or final == "issued")
    assert await world.broken() == []


async def test_canceling_during_issuance_waits_and_cancels_the_new_charge(world: World):
    """[D-27 charge]"""
    invoice = await ready_invoice(world)
    async with table_held(world, "account_counter"):
        issuing = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        canceling = asyncio.create_task(cancel(world, invoice))
        await asyncio.sleep(0.05)
    await issuing
    assert (await canceling).json["status"] == "canceled"
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    emitted = await world.events("invoice.issued", "invoice.canceled")
    assert [event["type"] for event in emitted] == ["invoice.issued", "invoice.canceled"]


@pytest.mark.parametrize("fault", ["rejected", "rate_limited"])
async def test_an_invoice_whose_issuance_failed_without_a_charge_is_canceled(world: World, fault: str):
    """[D-27, D-34]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", fault)
    await world.run("issuance")
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    await pass_time(world, days=1)
    assert await charges(world) == []


async def test_a_payment_of_a_canceled_invoice_emits_one_event(world: World):
    """[D-27 payment unexpected]"""
    invoice = await issued_invoice(world)
    await cancel(world, invoice)
    await pay_silently(world)
    for _ in range(2):
        # schedule a poll, as a webhook from the gateway would
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        await world.run("reconciliation")

    [event] = await world.events("invoice.payment_unexpected")
    assert event["data"]["invoice"]["id"] == invoice["id"]
    assert (await read(world, invoice))["status"] == "canceled"


async def test_the_event_carries_the_accounts_time(world: World):
    """[D-27, D-1]"""
    invoice = await ready_invoice(world)
    await cancel(world, invoice)
    [event] = await world.events("invoice.canceled")
    emitted_at = datetime.fromisoformat(event["createdAt"])
    assert timedelta(0) <= await now(world) - emitted_at < timedelta(seconds=30)


async def test_the_charge_is_canceled_through_the_connection_that_made_it(world: World):
    """[D-27 charge]"""
    first = await connection_id(world)
    second = (await world.connect(behaviour="never_pay"))["connectionId"]
    body = plan_body(await world.product())
    plan = await world.made("/v1/plans", body)
    subscription = await world.enroll(plan, gatewayConnectionId=second)
    await world.run("generation", "issuance")
    [invoice] = await world.invoices(subscription)
    await queue_fault(world, "cancel_charge", "rejected")
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    assert [each["connectionId"] for each in await charges(world)] == [second] != [first]
