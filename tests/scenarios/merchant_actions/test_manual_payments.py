"""Record payments received without the gateway.

Before Fatura records a payment that covers the total, it cancels the charge that the payer could still pay.
"""

import asyncio
from datetime import timedelta

import pytest

from tests.support.cancellation_steps import end_requests, killed
from tests.support.expect import UNKNOWN_ID, invalid, problem
from tests.support.refund_steps import refund
from tests.support.sandbox_steps import (
    cancel,
    charges,
    issued_invoice,
    move,
    now,
    park,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.world import Answer, Json, World, columns, rows


async def receive(world: World, invoice: Json, *, key: str = "fresh", **body: Json) -> Answer:
    path = f"/v1/invoices/{invoice['id']}/payments"
    return await world.post(path, {"method": "cash", **body}, key=key)


@pytest.fixture
async def issued(world: World) -> Json:
    await world.set_up_gateway(behaviour="never_pay")
    return await issued_invoice(world)


async def test_a_payment_elsewhere_pays_the_invoice_and_cancels_its_charge(
    world: World, issued: Json
) -> None:
    """[D-52]"""
    paid_at = (await now(world) - timedelta(days=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    answer = await receive(world, issued, paidAt=paid_at, reference="receipt 7", note="at the desk")

    paid = answer.json
    assert (answer.status, paid["status"], paid["paidAt"]) == (200, "paid", paid_at)
    assert columns(
        paid["payments"], "amountCents", "source", "method", "reference", "note", "chargeId"
    ) == rows("""
        amount | source | method | reference | note        | charge
        9990   | manual | cash   | receipt 7 | at the desk | None
    """)
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert [each["status"] for each in paid["charges"]] == ["canceled"]
    assert len(await world.events("invoice.paid")) == 1
    await pass_time(world, days=10)
    assert (await read(world, issued))["status"] == "paid"
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.parametrize("method", ["cash", "transfer", "pix", "card", "check", "other"])
async def test_an_overdue_invoice_is_paid_by_each_method(world: World, issued: Json, method: str) -> None:
    """[D-52, D-26]"""
    await pass_time(world, days=5)
    assert (await read(world, issued))["status"] == "overdue"

    paid = (await receive(world, issued, method=method)).json

    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert columns(paid["payments"], "source", "method") == [("manual", method)]
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert len(await world.events("invoice.paid")) == 1
    assert await world.broken() == []


async def test_a_part_received_elsewhere_leaves_the_charge_payable(world: World, issued: Json) -> None:
    """[D-52, D-50]"""
    part = await receive(world, issued, amountCents=4000, method="transfer")

    assert (part.json["status"], part.json["paidCents"]) == ("issued", 4000)
    assert [each["status"] for each in await charges(world)] == ["open"]
    rest = await receive(world, issued)
    assert (rest.json["status"], rest.json["paidCents"]) == ("paid", 9990)
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert await world.broken() == []


async def test_a_ready_invoice_that_was_paid_is_not_charged(world: World) -> None:
    """[D-52]"""
    invoice = await ready_invoice(world)

    assert (await receive(world, invoice)).json["status"] == "paid"

    await world.run()
    await pass_time(world, days=5)
    assert await charges(world) == []
    paid = await read(world, invoice)
    assert (paid["status"], paid["gatewayInvoiceId"], paid["issuedAt"]) == ("paid", None, None)
    assert await world.broken() == []


async def test_a_ready_invoice_that_was_partly_paid_is_charged_for_the_rest(world: World) -> None:
    """[D-52, D-67 reissue]"""
    invoice = await ready_invoice(world)

    assert (await receive(world, invoice, amountCents=4000)).json["status"] == "ready"
    await world.run("issuance")

    (charge,) = await charges(world)
    assert charge["amountCents"] == 5990
    assert await world.broken() == []


async def test_more_than_what_is_open_is_refused(world: World, issued: Json) -> None:
    """[D-67 amounts]"""
    await receive(world, issued, amountCents=4000)

    answer = await receive(world, issued, amountCents=5991)

    assert (answer.status, answer.type, answer.json["meta"]) == (
        422,
        "engine.amount_exceeds_open",
        {"openCents": 5990},
    )
    assert (await read(world, issued))["paidCents"] == 4000


@pytest.mark.parametrize("state", ["paid", "canceled", "held", "parked"])
async def test_an_invoice_that_takes_no_payment_gets_409(world: World, state: str) -> None:
    """[D-52 409]"""
    if state == "held":
        subscription = await world.enroll(await world.plan(await world.variable_product()))
        await world.run("generation", "pricing")
        (invoice,) = await world.invoices(subscription)
    else:
        invoice = await ready_invoice(world)
    if state == "paid":
        await receive(world, invoice)
    if state == "canceled":
        await cancel(world, invoice)
    if state == "parked":
        await park(world)
    before = await read(world, invoice)

    answer = await receive(world, invoice)

    assert (answer.status, answer.type) == (409, "engine.invoice_not_payable")
    assert await read(world, invoice) == before


async def test_a_part_received_before_a_refund_may_cover_the_total(world: World, issued: Json) -> None:
    """The payer paid 4000 of 9990 cents, and then 5990 elsewhere at `paidAt`. Later, the 4000 cents were refunded.

    At `paidAt`, the two payments covered the total. So Fatura cancels the charge before it records the 5990 cents.
    [D-52, D-150]
    """
    await world.made(f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/pay", {"amountCents": 4000})
    await world.run("reconciliation")
    paid_at = (
        (await now(world) + timedelta(hours=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    await pass_time(world, hours=2)
    assert (await refund(world, issued, amountCents=4000)).status == 200
    await queue_fault(world, "cancel_charge", "rejected")

    refused = await receive(world, issued, amountCents=5990, paidAt=paid_at)
    assert (refused.status, refused.type) == (409, "engine.invoice_not_payable")
    assert (await read(world, issued))["status"] == "issued"
    answer = await receive(world, issued, amountCents=5990, paidAt=paid_at)

    assert (answer.status, answer.json["status"], answer.json["paidAt"]) == (200, "paid", paid_at)
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert await world.broken() == []


@pytest.mark.parametrize("fault", ["rejected", "timeout_before", "paid"])
async def test_an_unconfirmed_cancellation_changes_nothing(world: World, issued: Json, fault: str) -> None:
    """[D-52 409]"""
    if fault == "paid":
        await pay_silently(world)
    else:
        await queue_fault(world, "cancel_charge", fault)

    answer = await receive(world, issued)

    assert (answer.status, answer.type) == (409, "engine.invoice_not_payable")
    await pass_time(world, minutes=5)
    found = await read(world, issued)
    assert [each["source"] for each in found["payments"]] == (["gateway"] if fault == "paid" else [])
    assert (await world.sql("SELECT count(*) AS n FROM merchant_request"))[0]["n"] <= 1


async def test_a_lost_cancellation_is_continued_by_a_poll(world: World, issued: Json) -> None:
    """[D-52 crash]"""
    await queue_fault(world, "cancel_charge", "timeout_after")
    answer = await receive(world, issued, key="once")
    assert answer.status == 409

    await pass_time(world, minutes=1)

    paid = await read(world, issued)
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    again = await receive(world, issued, key="once")
    assert (again.status, again.json["paidCents"]) == (200, 9990)
    assert await world.broken() == []


async def test_a_process_that_dies_after_the_cancellation_loses_no_payment(
    world: World, issued: Json
) -> None:
    """[D-52 crash]"""
    await killed(receive(world, issued, key="once"))
    await end_requests(world)

    await pass_time(world, minutes=1)

    assert (await read(world, issued))["status"] == "paid"
    assert await world.events("invoice.canceled") == []
    repeat = await receive(world, issued, key="once")
    assert (repeat.status, len(repeat.json["payments"])) == (200, 1)
    assert await world.broken() == []


async def test_a_repeat_may_reach_a_host_whose_clock_is_behind(world: World, issued: Json) -> None:
    """The process of a payment dies, and a poll records the payment. Then the client repeats the request.

    On the host that gets the repeat, `paidAt` is in the future. [D-52 key]
    """
    await pass_time(world, hours=1)
    received = {"key": "once", "paidAt": (await now(world)).isoformat(timespec="milliseconds")[:-6] + "Z"}
    await killed(receive(world, issued, **received))
    await end_requests(world)
    await pass_time(world, minutes=1)
    await world.sql("UPDATE account SET clock_offset = clock_offset - interval '2 minutes'")

    repeat = await receive(world, issued, **received)

    assert (repeat.status, len(repeat.json["payments"])) == (200, 1)


async def test_a_late_cancellation_records_the_payment(world: World, issued: Json) -> None:
    """The API process is suspended just before it asks the gateway to cancel the charge.

    Meanwhile, polls find the charge payable. Then the process resumes, sends the cancellation and dies.
    [D-171]
    """

    async def wait() -> None:
        await end_requests(world)
        await pass_time(world, hours=2)

    await killed(receive(world, issued, key="once"), before=wait)

    await pass_time(world, days=1)

    assert (await read(world, issued))["status"] == "paid"
    assert await world.events("invoice.canceled") == []
    assert await world.broken() == []


async def test_a_repeat_records_one_payment(world: World, issued: Json) -> None:
    """[D-52 key]"""
    answers = await asyncio.gather(*(receive(world, issued, key="once") for _ in range(3)))
    later = await receive(world, issued, key="once")

    assert {answer.status for answer in answers} <= {200, 409}
    assert later.status == 200
    assert [each["amountCents"] for each in (await read(world, issued))["payments"]] == [9990]
    refused = await world.post(f"/v1/invoices/{issued['id']}/payments", {"method": "cash"}, key=None)
    assert (refused.status, refused.type) == (400, "engine.idempotency_key_required")


async def test_a_payer_and_a_person_pay_at_the_same_time(world: World, issued: Json) -> None:
    """[D-52, D-50]"""
    (charge,) = await charges(world)
    answer, _ = await asyncio.gather(receive(world, issued, amountCents=9990), move(world, charge, "pay"))
    await world.run("reconciliation")
    await pass_time(world, minutes=5)

    paid = await read(world, issued)
    assert paid["status"] == "paid"
    assert paid["paidCents"] == 9990 * (1 + (answer.status == 200))
    assert await world.broken() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"amountCents": 0},
        {"amountCents": "1"},
        {"method": "gold"},
        {"paidAt": "2090-01-01"},
        {"reference": ""},
        {"note": "x" * 501},
        {"cents": 1},
    ],
    ids=str,
)
async def test_an_invalid_payment_is_refused(world: World, issued: Json, wrong: Json) -> None:
    """[D-52 400]"""
    answer = await receive(world, issued, **wrong)
    assert (answer.status, answer.type) == (400, "engine.invalid_request")


@pytest.mark.parametrize(
    "paid_at", ["0001-01-01T00:00:00Z", "0001-01-01", "1999-12-31T23:59:59.999Z", "1999-12-31"]
)
async def test_a_payment_before_the_year_2000_is_refused(world: World, issued: Json, paid_at: str) -> None:
    """[D-52 400]"""
    answer = await receive(world, issued, paidAt=paid_at)

    assert invalid(answer).keys() == {"paidAt"}
    [charge] = await charges(world)
    assert charge["status"] == "open"
    answer = await receive(world, issued, paidAt="2000-01-01")
    assert (answer.status, (await read(world, issued))["paidAt"]) == (200, "2000-01-01T02:00:00.000Z")


async def test_an_unknown_invoice_is_a_404(world: World) -> None:
    """[D-52, spec 5.4]"""
    other = await world.another()
    for sought in (UNKNOWN_ID, "7"):
        answer = await other.post(f"/v1/invoices/{sought}/payments", {"method": "cash"})
        assert problem(answer) == (404, "engine.not_found", None)
