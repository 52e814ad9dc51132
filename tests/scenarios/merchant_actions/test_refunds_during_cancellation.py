"""Refunds while the gateway cancels the charge of the invoice for a reissue or a manual payment."""

import pytest

from tests.support.cancellation_steps import around_the_cancellation
from tests.support.refund_steps import pay, refund, refunded_at_gateway
from tests.support.sandbox_steps import cancel, charges, issued_invoice, pass_time, queue_fault, read
from tests.support.world import Answer, Json, World


@pytest.fixture
async def part_paid(world: World) -> Json:
    """Return an issued invoice of 9990 cents, of which the payer has paid 4000."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pay(world, invoice, amountCents=4000)
    return invoice


async def refund_in_dashboard(world: World) -> None:
    """Refund the payment of 4000 cents at the gateway; the gateway sends no webhook."""
    await world.sql("""
        UPDATE sandbox_charge SET entries = entries || jsonb_build_array(jsonb_build_object('kind', 'refund',
            'reference', 'refund_' || charge_id, 'amount_cents', 4000, 'occurred_at', entries -> 0 -> 'occurred_at'))
    """)


@pytest.mark.parametrize(("path", "body"), [("reissue", {}), ("payments", {"method": "cash"})])
async def test_no_refund_begins_while_a_charge_is_being_canceled(
    world: World, part_paid: Json, path: str, body: Json
) -> None:
    """The next charge, or the manual payment, is for the open amount. A refund would change this amount. [D-151]"""
    answers = list[Answer]()

    async def ask_for_refund() -> None:
        answers.append(await refund(world, part_paid))

    with around_the_cancellation(before=ask_for_refund, after=ask_for_refund):
        assert (await world.post(f"/v1/invoices/{part_paid['id']}/{path}", body)).status == 200

    assert {(each.status, each.type) for each in answers} == {(409, "engine.invoice_not_refundable")}
    assert await refunded_at_gateway(world) == []
    await world.run("issuance")
    assert (await refund(world, part_paid, amountCents=4000)).json["refundedCents"] == 4000
    assert await world.broken() == []


@pytest.mark.parametrize(("path", "body"), [("reissue", {}), ("payments", {"method": "cash"})])
async def test_a_cancellation_does_not_drop_a_request_in_progress(
    world: World, part_paid: Json, path: str, body: Json
) -> None:
    """While a reissue or payment calls the gateway, the merchant cancels the invoice and asks for a refund.

    If the cancellation dropped the request in progress, the refund could change the open amount. [D-171]
    """
    answers = list[Answer]()

    async def cancel_and_refund() -> None:
        answers.append(await cancel(world, part_paid))
        answers.append(await refund(world, part_paid))

    with around_the_cancellation(before=cancel_and_refund):
        assert (await world.post(f"/v1/invoices/{part_paid['id']}/{path}", body)).status == 200

    assert [(each.status, each.type) for each in answers] == [
        (409, "engine.invoice_not_cancelable"),
        (409, "engine.invoice_not_refundable"),
    ]
    assert await world.broken() == []


@pytest.mark.parametrize("path", ["refunds", "payments"])
async def test_a_payment_is_not_dropped_before_the_gateway_has_answered(
    world: World, part_paid: Json, path: str
) -> None:
    """The gateway canceled the charge, but its answer was lost, so the payment is stored. The next poll fails.
    [D-171]
    """
    payments = f"/v1/invoices/{part_paid['id']}/payments"
    later = {} if path == "refunds" else {"method": "cash", "amountCents": 1000}
    await queue_fault(world, "cancel_charge", "timeout_after")
    assert (await world.post(payments, {"method": "cash"})).status == 409
    await queue_fault(world, "get_charge", "rate_limited")
    await pass_time(world, minutes=1)
    await world.sql("UPDATE merchant_request SET in_progress_until = now() - interval '2 days'")

    answer = await world.post(f"/v1/invoices/{part_paid['id']}/{path}", later)

    assert answer.status == 409
    assert len(await world.sql("SELECT FROM merchant_request")) == 1
    await pass_time(world, hours=1)
    found = await read(world, part_paid)
    assert (found["status"], found["paidCents"], found["refundedCents"]) == ("paid", 9990, 0)
    assert await world.broken() == []


@pytest.mark.parametrize("path", ["refunds", "payments"])
async def test_a_stored_payment_is_dropped_after_a_day_if_the_gateway_has_answered(
    world: World, part_paid: Json, path: str
) -> None:
    """The gateway never received the cancellation. Fatura does not know this, so it stores the payment.

    Then a poll shows that the charge can still be paid. [D-171]
    """
    later = {} if path == "refunds" else {"method": "cash", "amountCents": 1000}
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await world.post(f"/v1/invoices/{part_paid['id']}/payments", {"method": "cash"})).status == 409
    await pass_time(world, minutes=1)
    await world.sql("UPDATE merchant_request SET in_progress_until = now() - interval '2 days'")

    answer = await world.post(f"/v1/invoices/{part_paid['id']}/{path}", later)

    assert answer.status == 200
    assert await world.sql("SELECT FROM merchant_request") == []
    assert await world.broken() == []


@pytest.mark.parametrize("body", [{}, {"amountCents": 5990}], ids=["open", "given"])
@pytest.mark.parametrize("outcome", ["answered", "polled", "repeated"])
async def test_a_refund_in_the_gateway_does_not_raise_a_manual_payment(
    world: World, part_paid: Json, body: Json, outcome: str
) -> None:
    """The payer paid 4000 of 9990 cents by the charge. The merchant records the other 5990 cents as a manual payment.

    The merchant also refunds the 4000 cents at the gateway. Fatura still records 5990 cents, and charges 4000 cents
    again. [D-52, D-171]
    """
    path, body = f"/v1/invoices/{part_paid['id']}/payments", {"method": "cash", **body}
    if outcome == "answered":
        await refund_in_dashboard(world)
        assert (await world.post(path, body)).status == 200
    else:
        await queue_fault(world, "cancel_charge", "timeout_after")
        assert (await world.post(path, body, key="once")).status == 409
        await refund_in_dashboard(world)
    if outcome == "repeated":
        assert (await world.post(path, body, key="once")).status == 200

    await pass_time(world, hours=2)

    found = await read(world, part_paid)
    assert (found["status"], found["paidCents"], found["refundedCents"]) == ("issued", 9990, 4000)
    assert [(each["status"], each["amountCents"]) for each in found["charges"]] == [
        ("canceled", 9990),
        ("open", 4000),
    ]
    assert await world.broken() == []
    await pay(world, found)
    assert (await read(world, part_paid))["status"] == "paid"


async def test_a_charge_for_the_rest_respects_the_limit_of_charges(
    world: World, part_paid: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-176, D-52]"""
    monkeypatch.setattr("fatura.usecases.charging.next_charge.MAX_CHARGES", 1)
    path = f"/v1/invoices/{part_paid['id']}/payments"
    await refund_in_dashboard(world)
    assert (await world.post(path, {"method": "cash"})).json["status"] == "ready"
    await world.run()

    for _ in range(2):
        found = await read(world, part_paid)
        assert (found["status"], found["issueError"]["code"]) == ("ready", "invoice_not_reissuable")
        assert len(await charges(world)) == 1
        await world.post(f"/v1/invoices/{part_paid['id']}/retry-issuance")
    assert {each["data"]["invoice"]["id"] for each in await world.events("invoice.issue_failed")} == {
        part_paid["id"]
    }

    assert (await world.post(path, {"method": "cash"})).json["status"] == "paid"
    assert await world.broken() == []
