"""When invoices become overdue, and how late payments, refusals, cancellations and refunds are recorded."""

import asyncio
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    move,
    now,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    row_held,
    until_waiting,
)
from tests.support.world import Json, World, item, rows, subscription_body

SAO_PAULO = ZoneInfo("America/Sao_Paulo")


def local_day(event: Json) -> str:
    """Return the date in Sao Paulo when an event was emitted."""
    return datetime.fromisoformat(event["createdAt"]).astimezone(SAO_PAULO).date().isoformat()


EASTER_TO_LABOUR_DAY = rows("""
    due on              | overdue on | because
    2034-04-04          | 2034-04-07 | a Tuesday, and two banking days for clearing
    2034-04-05          | 2034-04-11 | Good Friday and a weekend are no banking days
    2034-04-07          | 2034-04-13 | Good Friday itself: payable on Monday
    2034-04-08          | 2034-04-13 | a Saturday: payable on Monday
    2034-04-20          | 2034-04-26 | Tiradentes on the 21st, then a weekend
    2034-04-21          | 2034-04-27 | Tiradentes itself
    2034-04-28          | 2034-05-04 | a weekend and Labour Day
    2034-04-29          | 2034-05-05 | a Saturday before Labour Day: payable on Tuesday
""")
NOVEMBER_TO_NEW_YEAR = rows("""
    due on              | overdue on | because
    2034-11-14          | 2034-11-18 | the Republic's day on the 15th
    2034-11-17          | 2034-11-23 | a weekend and Black Awareness Day
    2034-11-18          | 2034-11-24 | a Saturday before Black Awareness Day
    2034-12-22          | 2034-12-28 | a weekend and Christmas
    2034-12-23          | 2034-12-29 | a Saturday before Christmas
    2034-12-29          | 2035-01-04 | a weekend and New Year
""")
ANY_DAY = rows("""
    due on              | overdue on | because
    2034-04-06          | 2034-04-07 | a Thursday
    2034-04-07          | 2034-04-08 | Good Friday: pix and card need no banking day
    2034-04-08          | 2034-04-09 | a Saturday
""")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("method", "table"),
    [
        ("boleto", EASTER_TO_LABOUR_DAY),
        ("boleto", NOVEMBER_TO_NEW_YEAR),
        ("pix", ANY_DAY),
        ("card", ANY_DAY),
    ],
    ids=["boleto in April", "boleto at the year's end", "pix", "card"],
)
async def test_an_unpaid_charge_is_overdue_after_its_last_day(
    world: World, method: str, table: list[tuple[str, ...]]
) -> None:
    """The last day to pay by card or pix is the due date.

    A boleto due on a day without banking is payable on the next banking day. Clearing takes two more banking
    days. [D-26]
    """
    await world.set_up_gateway(behaviour="never_pay")
    await world.advance(f"{table[0][0][:7]}-01")
    plan = await world.plan(periodMonths=12, defaultPaymentMethod=method)
    for due_date, _, _ in table:
        await world.enroll(plan, firstChargeDate=due_date)

    await world.advance(f"{table[-1][1]}T12:00:00Z")

    emitted = await world.events("invoice.overdue")
    assert sorted((each["data"]["invoice"]["dueDate"], local_day(each)) for each in emitted) == [
        (due_date, overdue_on) for due_date, overdue_on, _ in table
    ]
    assert await world.broken() == []


@pytest.mark.faults
async def test_an_invoice_is_not_overdue_before_the_gateway_was_polled(world: World) -> None:
    """[D-26, D-35 polling]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pass_time(world, days=3)
    await queue_fault(world, "get_charge", "server_error", times=1000)

    await pass_time(world, days=1)

    assert (await read(world, invoice))["status"] == "issued"


@pytest.mark.parametrize(
    ("shown_minute", "types"),
    [(-1, ["invoice.paid"]), (5, ["invoice.overdue", "invoice.paid"])],
)
async def test_a_pix_paid_at_the_end_of_its_last_day_is_not_overdue_for_a_day(
    world: World, shown_minute: int, types: list[str]
) -> None:
    """No webhook comes. If the gateway shows the payment only after midnight, the next hourly poll finds it.

    [D-26, D-35 polling]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world, defaultPaymentMethod="pix")
    last_day = date.fromisoformat((await charges(world))[0]["dueDate"])
    midnight = datetime.combine(last_day + timedelta(days=1), time(), SAO_PAULO)
    shown_at = midnight + timedelta(minutes=shown_minute)
    await pass_time(world, seconds=(shown_at - await now(world)).total_seconds())

    await pay_silently(world)
    await pass_time(world, minutes=61)

    assert (await read(world, invoice))["status"] == "paid"
    assert [each["type"] for each in await world.events("invoice.overdue", "invoice.paid")] == types


async def test_a_refused_charge_is_overdue_immediately(world: World) -> None:
    """[D-26, D-34]"""
    await world.set_up_gateway(behaviour="refuse")
    invoice = await ready_invoice(world, defaultPaymentMethod="card")

    await world.run()

    assert (await read(world, invoice))["status"] == "overdue"
    kinds = [event["type"] for event in await world.events() if "invoice" in event["data"]]
    assert kinds == ["invoice.created", "invoice.issued", "invoice.overdue"]


@pytest.mark.faults
async def test_an_invoice_charged_late_is_overdue_after_the_due_date_of_its_charge(world: World) -> None:
    """[D-5, D-26]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await patch_connection(world, active=False)
    await pass_time(world, days=5)
    await patch_connection(world, active=True)

    await world.run()
    assert (await read(world, invoice))["status"] == "issued"
    (charge,) = await charges(world)
    await pass_time(world, days=1)

    (emitted,) = await world.events("invoice.overdue")
    assert (
        local_day(emitted)
        == (datetime.fromisoformat(charge["dueDate"]) + timedelta(days=1)).date().isoformat()
    )


@pytest.mark.faults
async def test_a_late_payment_makes_an_overdue_invoice_paid(world: World) -> None:
    """[D-26]"""
    await world.set_up_gateway(behaviour="refuse")
    invoice = await ready_invoice(world)
    await world.run()
    (charge,) = await charges(world)
    await pass_time(world, days=20)

    await move(world, charge, "pay")
    await world.run("reconciliation")

    paid = await read(world, invoice)
    assert paid["status"] == "paid"
    assert datetime.fromisoformat(paid["paidAt"]) >= datetime.fromisoformat(paid["issuedAt"]) + timedelta(
        days=20
    )
    kinds = [event["type"] for event in await world.events() if "invoice" in event["data"]]
    assert kinds == ["invoice.created", "invoice.issued", "invoice.overdue", "invoice.paid"]
    assert await world.broken() == []


@pytest.mark.faults
async def test_a_late_payment_is_found_by_polling_alone(world: World) -> None:
    """[D-35 polling]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pass_time(world, days=10)
    assert (await read(world, invoice))["status"] == "overdue"
    await pay_silently(world)

    await pass_time(world, days=1)

    assert (await read(world, invoice))["status"] == "paid"


async def test_a_charge_of_an_inactive_connection_is_still_polled(world: World) -> None:
    """[D-35 polling]"""
    invoice = await issued_invoice(world)
    await patch_connection(world, active=False)

    await world.advance(invoice["dueDate"])

    assert (await read(world, invoice))["status"] == "paid"


@pytest.mark.faults
async def test_a_payment_after_years_is_found_when_the_charge_is_polled(world: World) -> None:
    """The charge has no more scheduled polls. Paying a sandbox charge triggers a poll, as a webhook would.
    [D-26, D-46]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world, periodMonths=12)
    await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
    await pass_time(world, days=800)
    (charge,) = await charges(world)

    await move(world, charge, "pay")
    await world.run("reconciliation")

    assert (await read(world, invoice))["status"] == "paid"


async def test_a_refund_emits_one_event_and_the_invoice_stays_paid(world: World) -> None:
    """[D-36, D-129]"""
    await world.set_up_gateway(behaviour="pay_at_once")
    invoice = await ready_invoice(world)
    await world.run()
    (charge,) = await charges(world)

    for _ in range(2):
        assert (await move(world, charge, "refund"))["status"] == "refunded"
        await world.run("reconciliation")
    await pass_time(world, days=3)

    [refunded] = await world.events("invoice.refunded")
    found = await read(world, invoice)
    assert (found["status"], found["refundedAt"], found["disputedAt"]) == (
        "paid",
        refunded["createdAt"],
        None,
    )
    assert refunded["data"]["invoice"]["refundedAt"] == refunded["createdAt"]
    assert len(await world.events("invoice.paid")) == 1


async def test_one_poll_emits_a_payment_and_its_refund(world: World) -> None:
    """[D-36]"""
    invoice = await issued_invoice(world)
    (charge,) = await charges(world)
    await move(world, charge, "pay")
    await move(world, charge, "refund")

    await world.run("reconciliation")

    kinds = [event["type"] for event in await world.events() if "invoice" in event["data"]]
    assert kinds == ["invoice.created", "invoice.issued", "invoice.paid", "invoice.refunded"]
    assert (await read(world, invoice))["status"] == "paid"


@pytest.mark.parametrize("behaviour", ["never_pay", "refuse"], ids=["issued", "overdue"])
async def test_a_charge_canceled_at_the_gateway_cancels_the_invoice(world: World, behaviour: str) -> None:
    """[D-28]"""
    await world.set_up_gateway(behaviour=behaviour)
    invoice = await ready_invoice(world)
    await world.run()
    (charge,) = await charges(world)

    await move(world, charge, "cancel")
    await world.run()
    await pass_time(world, days=10)

    assert (await read(world, invoice))["status"] == "canceled"
    assert len(await world.events("invoice.canceled")) == 1
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert await world.broken() == []


async def test_a_payment_during_a_poll_is_not_missed(world: World) -> None:
    """The payer pays after the gateway has answered the poll, but before Fatura records the answer. [D-46]"""
    prompt = await issued_invoice(world)
    slow = await world.connect(behaviour="never_pay")
    plan = await world.plan(item(await world.product(500)))
    await world.made("/v1/subscriptions", subscription_body(plan, gatewayConnectionId=slow["connectionId"]))
    await world.run("generation", "issuance")
    await pass_time(world, days=2)
    (unpaid,) = [each for each in await charges(world) if each["connectionId"] == slow["connectionId"]]
    await _reach_the_due_date_without_workers(world, prompt)

    async with row_held(world, "sandbox_charge", charge_id=prompt["gatewayInvoiceId"]):
        asking = asyncio.create_task(world.run("reconciliation"))
        # The gateway answers the poll of `unpaid`. The poll of `prompt` waits for the locked row.
        await until_waiting(world)
        await asyncio.sleep(0.05)
        await move(world, unpaid, "pay")
    await asking
    await world.run("reconciliation")

    assert (await read(world, {"id": unpaid["invoiceId"]}))["status"] == "paid"


async def _reach_the_due_date_without_workers(world: World, invoice: Json) -> None:
    """Move the clock to the due date while no worker runs.

    When workers run again, the polls of all charges are due at the same time.
    """
    gap = datetime.fromisoformat(f"{invoice['dueDate']}T04:00:00+00:00") - await now(world)
    await world.sql(
        "UPDATE account SET clock_offset = clock_offset + $2 WHERE account_id = $1", world.account_id, gap
    )
