"""`reissue` cancels the charge of an invoice at the gateway and issues the invoice again (D-51)."""

import asyncio

import pytest

from tests.support.expect import UNKNOWN_ID, problem
from tests.support.refund_steps import pay, refund
from tests.support.reissue_steps import ask, payable, refused, unpaid_invoice
from tests.support.sandbox_steps import (
    cancel,
    charges,
    connection_id,
    move,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.world import Json, World, columns, rows


@pytest.mark.faults
async def test_an_overdue_invoice_gets_another_charge(world: World) -> None:
    """[D-51, D-131, D-49, D-49 detail]"""
    invoice = await unpaid_invoice(world, defaultPaymentMethod="boleto")
    await pass_time(world, days=10)
    overdue = await read(world, invoice)
    assert overdue["status"] == "overdue"

    reissued = (await ask(world, invoice, paymentMethod="pix")).json

    assert reissued["status"] == "ready"
    assert reissued["gatewayInvoiceId"] == overdue["gatewayInvoiceId"]
    assert columns(reissued["charges"], "number", "status", "paymentMethod") == rows("""
        number | status   | method
        1      | canceled | boleto
        2      | sending  | pix
    """)
    [event] = await world.events("invoice.reissued")
    assert event["data"]["invoice"]["status"] == "ready"

    await world.run("issuance")
    again = await read(world, invoice)
    newest, _ = await charges(world)
    today = (await world.get("/v1/test-clock")).json["now"][:10]
    assert (again["status"], again["gatewayInvoiceId"]) == ("issued", newest["chargeId"])
    assert (again["dueDate"], again["paymentMethod"]) == (overdue["dueDate"], "boleto")
    assert (newest["dueDate"], newest["paymentMethod"], newest["amountCents"]) == (today, "pix", 9990)
    assert again["issuedAt"] > overdue["issuedAt"]
    assert again["payment"]["pixCode"]
    assert len(await payable(world)) == 1

    await move(world, newest, "pay")
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "paid"
    assert len(await world.events("invoice.issued")) == 2
    assert await world.broken() == []


async def test_failures_of_the_first_issue_do_not_count_for_the_reissue(world: World) -> None:
    """The first issuance and the reissue both fail for over an hour. Each emits `invoice.issue_delayed` once.
    [D-34, D-51]
    """
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rate_limited", times=12)
    await pass_time(world, hours=24)
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await world.events("invoice.issue_delayed")) == 1

    await queue_fault(world, "create_charge", "rate_limited", times=12)
    await ask(world, invoice)
    await world.run("issuance")
    assert len(await world.events("invoice.issue_delayed")) == 1

    await pass_time(world, hours=24)
    assert (await read(world, invoice))["status"] == "paid"
    assert len(await world.events("invoice.issue_delayed")) == 2
    assert await world.broken() == []


@pytest.mark.faults
async def test_a_later_due_date_applies_to_the_charge(world: World) -> None:
    """The invoice keeps its own due date, but becomes overdue only after the due date of the new charge.
    [D-51, D-26]
    """
    invoice = await unpaid_invoice(world)
    await ask(world, invoice, dueDate="2033-12-20")
    await world.run("issuance")
    newest, _ = await charges(world)
    assert (newest["dueDate"], (await read(world, invoice))["dueDate"]) == ("2033-12-20", invoice["dueDate"])

    await world.advance("2033-12-20T12:00:00Z")
    assert (await read(world, invoice))["status"] == "issued"
    await world.advance("2033-12-21T12:00:00Z")
    assert (await read(world, invoice))["status"] == "overdue"
    assert await world.broken() == []


@pytest.mark.parametrize("due_date", ["2033-11-19", "2040-01-01"])
async def test_a_due_date_out_of_range_is_refused(world: World, due_date: str) -> None:
    """[D-51 400]"""
    invoice = await unpaid_invoice(world)
    answer = await ask(world, invoice, dueDate=due_date)
    assert (answer.status, answer.json["meta"]["fields"][0]["path"]) == (400, "dueDate")
    assert len(await charges(world)) == 1


async def test_a_refused_charge_is_sent_with_other_terms(world: World) -> None:
    """The reissue changes the payment method. A later retry keeps the changed method. [D-51, D-34]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world, defaultPaymentMethod="card", maxInstallments=3)
    await queue_fault(world, "create_charge", "rejected", times=2)
    await world.run("issuance")

    reissued = (await ask(world, invoice, paymentMethod="boleto")).json
    assert (reissued["status"], reissued["issueError"]) == ("ready", None)
    assert len(await world.events("invoice.reissued")) == 1
    await world.run("issuance")
    assert (await read(world, invoice))["issueError"]["code"] == "rejected"
    await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")

    shown = await read(world, invoice)
    assert columns(shown["charges"], "status", "paymentMethod", "installments") == rows("""
        status   | method | installments
        not_made | card   | 3
        not_made | boleto | None
        open     | boleto | None
    """)
    assert await world.broken() == []


async def test_unsupported_terms_are_refused(world: World) -> None:
    """The existing charge stays payable. [D-51 422]"""
    invoice = await unpaid_invoice(world, defaultPaymentMethod="card", maxInstallments=2)
    await world.set_up_gateway(methods=["card", "pix"], maxInstallments=3)
    wanted: list[tuple[dict[str, Json], str]] = [
        ({"paymentMethod": "boleto"}, "engine.payment_method_unsupported"),
        ({"installments": 4}, "engine.installments_unsupported"),
        ({"paymentMethod": "pix", "installments": 2}, "engine.installments_unsupported"),
    ]
    for body, code in wanted:
        answer = await ask(world, invoice, **body)
        assert (answer.status, answer.type) == (422, code)
    answer = await ask(world, invoice, paymentMethod="boleto")
    assert f"{await connection_id(world)} does not issue boleto" in answer.json["detail"]
    answer = await ask(world, invoice, paymentMethod="pix", installments=2)
    assert answer.json["detail"] == "pix is issued in at most 1 installment(s); lower installments."
    assert [each["status"] for each in await charges(world)] == ["open"]
    assert (await ask(world, invoice, installments=3)).json["charges"][-1]["installments"] == 3


async def test_a_paid_charge_is_not_reissued(world: World) -> None:
    """The payer pays the charge just before Fatura tries to cancel it. [D-51 409]"""
    invoice = await unpaid_invoice(world)
    [charge] = await charges(world)
    await pay_silently(world)
    await refused(world, invoice)
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "paid"
    assert [each["chargeId"] for each in await charges(world)] == [charge["chargeId"]]
    assert "paid" in await refused(world, invoice)
    assert await world.broken() == []


async def test_a_reissue_is_refused_in_every_other_state(world: World) -> None:
    """[D-51 409, D-11]"""
    await world.set_up_gateway(behaviour="never_pay")
    waiting = await ready_invoice(world)
    draft = await world.enroll(await world.plan(await world.variable_product()))
    await world.run("generation")
    [pending] = await world.invoices(draft)
    canceled = await ready_invoice(world)
    await cancel(world, canceled)
    for invoice in (waiting, pending, canceled):
        await refused(world, invoice)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    assert "being issued" in await refused(world, waiting)
    for sought in (UNKNOWN_ID, "7"):
        answer = await world.post(f"/v1/invoices/{sought}/reissue", {})
        assert problem(answer) == (404, "engine.not_found", None)
    other = await world.another()
    assert (await other.post(f"/v1/invoices/{waiting['id']}/reissue", {})).status == 404


async def test_an_inactive_connection_reissues_nothing(world: World) -> None:
    """A reissue would leave the payer without a charge until the connection is active again.
    [D-51 409, D-55 inactive]
    """
    invoice = await unpaid_invoice(world)
    await patch_connection(world, active=False)
    assert "inactive" in await refused(world, invoice)
    assert [each["status"] for each in await charges(world)] == ["open"]


async def test_a_repeated_request_gets_the_first_answer(world: World) -> None:
    """[D-51 key, D-14]"""
    invoice = await unpaid_invoice(world)
    first = await ask(world, invoice, key="k")
    await world.run("issuance")
    again = await ask(world, invoice, key="k")
    assert (again.status, again.body) == (200, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert len(await charges(world)) == 2
    assert (await world.post(f"/v1/invoices/{invoice['id']}/reissue", {}, key=None)).status == 400


@pytest.mark.parametrize("key", ["same", "fresh"])
async def test_concurrent_reissues_make_one_charge(world: World, key: str) -> None:
    """[D-51 once, D-14]"""
    invoice = await unpaid_invoice(world)
    asked = asyncio.gather(*(ask(world, invoice, key=key) for _ in range(6)))
    await asyncio.gather(*(world.run("issuance", "reconciliation") for _ in range(3)))
    answers = await asked
    assert {answer.status for answer in answers} <= {200, 409}
    assert 200 in {answer.status for answer in answers}
    assert key != "same" or len({answer.body for answer in answers}) == 1

    await world.run()
    assert len(await world.events("invoice.reissued")) == len(await charges(world)) - 1
    assert len(await payable(world)) == 1
    if key == "same":
        assert len(await charges(world)) == 2
    assert await world.broken() == []


async def test_a_payment_of_the_replaced_charge_pays_the_invoice(world: World) -> None:
    """The invoice shows the replaced charge as paid, and Fatura cancels the new charge. [D-51 old charge, D-49]"""
    invoice = await unpaid_invoice(world, defaultPaymentMethod="boleto")
    await ask(world, invoice)
    await world.run("issuance")
    new, old = await charges(world)
    await pay_silently(world, old["chargeId"])

    await pass_time(world, days=1)

    paid = await read(world, invoice)
    assert (paid["status"], paid["gatewayInvoiceId"]) == ("paid", old["chargeId"])
    assert [each["status"] for each in await charges(world)] == ["canceled", "paid"]
    await pass_time(world, hours=1)
    assert [each["status"] for each in (await read(world, invoice))["charges"]] == ["paid", "canceled"]
    assert new["chargeId"] != old["chargeId"]
    assert await world.broken() == []


async def test_a_reissue_after_a_part_payment_charges_what_is_open(world: World) -> None:
    """[D-67 reissue, D-51]"""
    invoice = await unpaid_invoice(world)
    [charge] = await charges(world)
    await world.made(f"/v1/sandbox/charges/{charge['chargeId']}/pay", {"amountCents": 4000})
    await world.run("reconciliation")
    assert (await read(world, invoice))["paidCents"] == 4000

    planned = (await ask(world, invoice)).json["charges"][-1]
    assert (planned["amountCents"], planned["status"]) == (5990, "sending")
    await queue_fault(world, "create_charge", "rejected")
    await world.run("issuance")
    await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")
    newest, *_ = await charges(world)
    assert (newest["amountCents"], newest["status"]) == (5990, "open")
    await move(world, newest, "pay")
    await world.run("reconciliation")

    paid = await read(world, invoice)
    assert (paid["status"], paid["paidCents"], paid["totalCents"]) == ("paid", 9990, 9990)
    assert await world.events("invoice.overpaid") == []
    assert await world.broken() == []


@pytest.mark.parametrize(("cents", "sent"), [(4000, [5990]), (9990, [])])
async def test_a_payment_before_the_next_charge_is_sent_lowers_it(
    world: World, cents: int, sent: list[int]
) -> None:
    """If the payment covers the whole amount of the next charge, no charge is sent. [D-67 reissue, D-52]"""
    invoice = await unpaid_invoice(world)
    assert (await ask(world, invoice)).json["charges"][-1]["amountCents"] == 9990
    received = await world.post(
        f"/v1/invoices/{invoice['id']}/payments", {"method": "cash", "amountCents": cents}
    )
    assert received.status == 200

    await world.run()

    assert [each["amountCents"] for each in await payable(world)] == sent
    assert await world.broken() == []


@pytest.mark.parametrize(
    "fault", [None, "timeout_before", "rate_limited"], ids=["unsent", "unknown", "absent"]
)
async def test_no_refund_begins_before_the_next_charge_is_confirmed(world: World, fault: str | None) -> None:
    """A refund would make the next charge too small to pay the invoice. [D-53, D-51]"""
    invoice = await unpaid_invoice(world)
    await pay(world, invoice, amountCents=4000)
    await ask(world, invoice)
    if fault is not None:
        await queue_fault(world, "create_charge", fault)
        await world.run("issuance")

    answer = await refund(world, invoice)

    assert (answer.status, answer.type) == (409, "engine.invoice_not_refundable")
    await pass_time(world, hours=2)
    [charge] = await payable(world)
    assert charge["amountCents"] == 5990
    assert (await refund(world, invoice)).status == 200


async def test_a_retry_waits_for_a_pending_refund(world: World) -> None:
    """A retry after the refund charges the refunded amount again. [D-53, D-34]"""
    invoice = await unpaid_invoice(world)
    await pay(world, invoice, amountCents=4000)
    await ask(world, invoice)
    await queue_fault(world, "create_charge", "rejected")
    await world.run("issuance")
    await queue_fault(world, "refund_charge", "timeout_before")
    assert (await refund(world, invoice)).status == 202

    answer = await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")

    assert (answer.status, answer.type) == (409, "engine.invoice_not_ready")
    await pass_time(world, minutes=10)
    await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")
    assert [each["amountCents"] for each in await payable(world)] == [9990]
    assert await world.broken() == []


async def test_a_reissued_invoice_can_be_canceled_before_it_is_sent(world: World) -> None:
    """[D-51, D-27]"""
    invoice = await unpaid_invoice(world)
    await ask(world, invoice)
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    await world.run()
    assert [each["stage"] for each in await stored_charges(world)] == ["canceled", "failed"]
    assert await payable(world) == []
    assert await world.broken() == []


async def test_an_invoice_has_a_limited_number_of_charges(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit, the invoice can still be canceled. [D-176]"""
    monkeypatch.setattr("fatura.usecases.charging.next_charge.MAX_CHARGES", 2)
    invoice = await unpaid_invoice(world)
    assert (await ask(world, invoice)).status == 200
    await world.run("issuance")

    detail = await refused(world, invoice)

    assert detail == "The invoice has 2 charges, which is the maximum; cancel it, or record its payment."
    assert (await cancel(world, invoice)).json["status"] == "canceled"


async def test_refused_charges_do_not_count_towards_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reissue changes the refused payment method, and counts as a retry of issuance. [D-176, D-113, D-51]"""
    monkeypatch.setattr("fatura.usecases.charging.next_charge.MAX_CHARGES", 2)
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected", times=5)
    await world.run("issuance")
    for _ in range(4):
        await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")
    paced = "UPDATE invoice SET retry_paced_until = now() + interval '{}'"
    await world.sql(paced.format("149 minutes"))
    assert (await ask(world, invoice, paymentMethod="boleto")).type == "engine.rate_limited"
    await world.sql(paced.format("100 minutes"))

    assert (await ask(world, invoice, paymentMethod="boleto")).status == 200
    await world.run("issuance")

    newest = (await read(world, invoice))["charges"][-1]
    assert (newest["number"], newest["status"], newest["paymentMethod"]) == (6, "open", "boleto")
    assert await world.broken() == []


async def test_the_budget_of_polls_counts_every_charge(world: World) -> None:
    """[D-176, D-55 budget]"""
    invoice = await unpaid_invoice(world)
    for _ in range(2):
        assert (await ask(world, invoice)).status == 200
        await world.run("issuance")
    await world.sql("UPDATE connection_health SET polls_per_minute = 60, polls_from = NULL")
    [before] = await world.sql("SELECT now() AS at")

    await world.set_up_gateway(behaviour="never_pay")  # new settings make all open charges due for a poll
    await world.sql("UPDATE connection_health SET polls_per_minute = 60, polls_from = NULL")
    await world.run("reconciliation")

    [health] = await world.sql("SELECT polls_from AS at FROM connection_health")
    assert (health["at"] - before["at"]).total_seconds() >= 3
