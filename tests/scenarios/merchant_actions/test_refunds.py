"""Refunds: which payments are refunded, and when Fatura or the gateway refuses a refund."""

import asyncio

import pytest

from fatura.usecases.transaction import load_account
from tests.support.event_fields import fields, fields_of_sample
from tests.support.expect import UNKNOWN_ID, problem
from tests.support.refund_steps import paid_invoice, pay, refund, refunded_at_gateway, store
from tests.support.sandbox_steps import (
    cancel,
    charges,
    issued_invoice,
    move,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
    refund_silently,
)
from tests.support.world import Json, World, columns, rows


@pytest.fixture
async def paid(world: World) -> Json:
    return await paid_invoice(world)


async def test_a_payment_is_refunded_in_full(world: World, paid: Json) -> None:
    """[D-53, D-50]"""
    answer = await refund(world, paid, reason="The gym was closed.")

    assert answer.status == 200
    invoice = answer.json
    assert (invoice["status"], invoice["paidCents"], invoice["refundedCents"]) == ("paid", 9990, 9990)
    assert invoice["refundedAt"] is not None
    entry, shown = invoice["payments"][-1], invoice["refunds"]
    assert columns(shown, "status", "amountCents", "currency", "source", "reason", "error") == rows("""
        status | cents | currency | source  | reason              | error
        done   | 9990  | BRL      | gateway | The gym was closed. | None
    """)
    assert (shown[0]["paymentId"], shown[0]["chargeId"]) == (entry["id"], entry["chargeId"])
    assert (entry["kind"], entry["source"], entry["amountCents"]) == ("refund", "gateway", 9990)
    assert [each["status"] for each in await charges(world)] == ["refunded"]
    await pass_time(world, days=60)
    (event,) = await world.events("invoice.refunded")
    assert event["data"]["entry"] == entry
    assert await refunded_at_gateway(world) == [9990]
    assert await world.broken() == []


async def test_parts_are_refunded_up_to_what_was_paid(world: World, paid: Json) -> None:
    """[D-53, D-67 refund]"""
    part = (await refund(world, paid, amountCents=4000)).json
    assert (part["refundedCents"], part["refundedAt"]) == (4000, None)

    above = await refund(world, paid, amountCents=5991)

    assert (above.status, above.type) == (422, "engine.amount_exceeds_paid")
    assert above.json["meta"]["refundableCents"] == 5990
    assert (await refund(world, paid)).json["refundedCents"] == 9990
    nothing = await refund(world, paid)
    assert (nothing.status, nothing.type) == (422, "engine.amount_exceeds_paid")
    assert nothing.json["meta"] == {"refundableCents": 0, "parts": []}
    assert await refunded_at_gateway(world) == [4000, 5990]
    assert await world.broken() == []


async def test_a_refund_in_the_gateway_lowers_what_is_left(world: World, paid: Json) -> None:
    """The merchant refunded the payment at the gateway, and no poll has found this refund yet. [D-53 refused]"""
    await refund_silently(world)

    answer = await refund(world, paid, amountCents=1)

    assert (answer.status, answer.type) == (422, "engine.refund_refused")
    assert answer.json["meta"]["code"] == "charge_status"
    assert await refunded_at_gateway(world) == [9990]


async def test_a_refused_refund_moves_no_money(world: World, paid: Json) -> None:
    """[D-53 refused]"""
    await queue_fault(world, "refund_charge", "rejected")

    refused = await refund(world, paid, key="once")

    assert (refused.status, refused.type) == (422, "engine.refund_refused")
    (shown,) = (await read(world, paid))["refunds"]
    assert refused.json["meta"] == {"code": "rejected", "refundId": shown["id"]}
    assert (shown["status"], shown["error"]["code"], shown["paymentId"]) == ("failed", "rejected", None)
    (event,) = await world.events("invoice.refund_failed")
    assert fields(event) == fields_of_sample(event["type"])
    assert event["data"]["refund"] == shown
    assert (await refund(world, paid, key="once")).type == "engine.refund_refused"
    assert await refunded_at_gateway(world) == []
    assert (await refund(world, paid)).json["refundedCents"] == 9990
    assert await world.broken() == []


async def test_concurrent_refunds_never_exceed_what_was_paid(world: World, paid: Json) -> None:
    """[D-53 concurrent]"""
    answers = await asyncio.gather(*(refund(world, paid, amountCents=6000) for _ in range(4)))

    assert sum(answer.status == 200 for answer in answers) == 1
    assert {answer.status for answer in answers} <= {200, 409, 422}
    assert await refunded_at_gateway(world) == [6000]
    assert await world.broken() == []


async def test_concurrent_repeats_make_one_refund(world: World, paid: Json) -> None:
    """[D-53 concurrent, D-14]"""
    answers = await asyncio.gather(*(refund(world, paid, key="once", amountCents=6000) for _ in range(4)))

    assert {answer.status for answer in answers} <= {200, 202}
    assert await refunded_at_gateway(world) == [6000]
    other = await refund(world, paid, key="once", amountCents=1)
    assert (other.status, other.type) == (422, "engine.idempotency_key_reused")


async def test_a_second_refund_waits_for_the_first(world: World, paid: Json) -> None:
    """[D-151]"""
    await queue_fault(world, "refund_charge", "rate_limited")
    assert (await refund(world, paid, amountCents=1)).status == 202

    answer = await refund(world, paid, amountCents=1)

    assert (answer.status, answer.type) == (409, "engine.invoice_not_refundable")
    await pass_time(world, minutes=3)
    assert (await refund(world, paid, amountCents=1)).status == 200


async def test_a_pending_refund_delays_what_depends_on_it(world: World) -> None:
    """[D-51, D-52, D-53]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pay(world, invoice, amountCents=4000)
    await queue_fault(world, "refund_charge", "timeout_before")
    assert (await refund(world, invoice)).status == 202
    path, cash = f"/v1/invoices/{invoice['id']}", {"method": "cash"}
    before = await read(world, invoice)

    for name, body, refusal in (
        ("reissue", {}, "engine.invoice_not_reissuable"),
        ("payments", cash, "engine.invoice_not_payable"),
    ):
        answer = await world.post(f"{path}/{name}", body)
        assert (answer.status, answer.type) == (409, refusal)
        assert "refund" in answer.json["detail"]
    assert await read(world, invoice) == before
    assert (await world.post(f"{path}/payments", {**cash, "amountCents": 100})).status == 200

    await pass_time(world, minutes=10)

    assert (await read(world, invoice))["refundedCents"] == 4000
    reissued = await world.made(f"{path}/reissue", {})
    assert reissued["charges"][-1]["amountCents"] == 9890
    assert await world.broken() == []


async def test_manual_payments_are_refunded_by_recording_it(world: World) -> None:
    """[D-53 manual]"""
    invoice = await ready_invoice(world)
    await world.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash"})

    answer = await refund(world, invoice, key="once", amountCents=4000, reason="at the desk")

    assert (answer.status, answer.json["refundedCents"]) == (200, 4000)
    assert columns(answer.json["payments"][1:], "kind", "amountCents", "source", "method", "note") == rows("""
        kind   | cents | source | method | note
        refund | 4000  | manual | None   | at the desk
    """)
    assert columns(answer.json["refunds"], "status", "source", "chargeId") == [("done", "manual", "None")]
    assert (await refund(world, invoice, key="once", amountCents=4000, reason="at the desk")).status == 200
    assert (await refund(world, invoice, amountCents=5991)).status == 422
    assert (await refund(world, invoice)).json["refundedCents"] == 9990
    assert len(await world.events("invoice.refunded")) == 2
    assert await world.broken() == []


async def test_one_refund_takes_the_payments_of_one_charge(world: World) -> None:
    """Fatura refunds the most recently paid charge that has enough money left.

    Manual payments are refunded last. [D-151]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash", "amountCents": 4000})
    await pay(world, invoice, amountCents=3000)
    await world.made(f"/v1/invoices/{invoice['id']}/reissue", {})
    await world.run("issuance")
    second = await read(world, invoice)
    await pay(world, second, amountCents=2990)
    assert (await read(world, invoice))["status"] == "paid"

    whole = await refund(world, invoice)

    assert (whole.status, whole.type) == (422, "engine.amount_exceeds_paid")
    assert "in this order" in whole.json["detail"]
    first_id, second_id = [each["id"] for each in second["charges"]]
    assert [(each["chargeId"], each["refundableCents"]) for each in whole.json["meta"]["parts"]] == [
        (second_id, 2990),
        (first_id, 3000),
        (None, 4000),
    ]
    taken = [
        (await refund(world, invoice, amountCents=cents)).json["refunds"][-1]["chargeId"]
        for cents in (2000, 2000, 2000, 990, 1000)
    ]
    assert taken == [second_id, first_id, None, second_id, first_id]
    last = await refund(world, invoice)
    assert (last.status, last.json["refundedCents"]) == (200, 9990)
    assert last.json["refunds"][-1]["source"] == "manual"
    assert await world.broken() == []


async def test_payments_that_came_by_mistake_are_refunded(world: World, paid: Json) -> None:
    """Examples: a payment of a second charge of a paid invoice, and a payment of a canceled invoice. [D-53]"""
    path = f"/v1/sandbox/charges/{paid['gatewayInvoiceId']}/double"
    double = await world.made(path)
    await move(world, double, "pay")
    await world.run("reconciliation")
    canceled = await issued_invoice(world)
    await cancel(world, canceled)
    await pay(world, canceled, amountCents=9990)

    assert (await refund(world, paid, amountCents=9990)).json["refundedCents"] == 9990
    assert (await refund(world, canceled)).json["refundedCents"] == 9990

    statuses = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert statuses[double["chargeId"]] == "refunded"
    assert (await read(world, canceled))["status"] == "canceled"
    assert await world.broken() == []


async def test_disputed_money_is_not_refunded(world: World, paid: Json) -> None:
    """[D-151]"""
    dispute = f"/v1/sandbox/charges/{paid['gatewayInvoiceId']}/dispute"
    await world.made(dispute, {"amountCents": 6000})
    await world.run("reconciliation")
    above = await refund(world, paid, amountCents=3991)
    assert (above.type, above.json["meta"]["refundableCents"]) == ("engine.amount_exceeds_paid", 3990)
    await world.made(dispute, {})
    await world.run("reconciliation")

    answer = await refund(world, paid)

    assert (answer.status, answer.type) == (409, "engine.invoice_not_refundable")
    for _ in range(2):
        await world.made(f"{dispute}-close", {"won": True})
    await world.run("reconciliation")
    assert (await refund(world, paid)).status == 200
    assert await world.broken() == []


@pytest.mark.parametrize("deed", ["dispute", "refund"])
async def test_a_refund_is_not_sent_after_its_money_is_taken(world: World, paid: Json, deed: str) -> None:
    """Between the rate-limited first request and its repeat, a refund or dispute takes the money. [D-53, D-151]"""
    await queue_fault(world, "refund_charge", "rate_limited")
    assert (await refund(world, paid, amountCents=4000)).status == 202
    await world.made(f"/v1/sandbox/charges/{paid['gatewayInvoiceId']}/{deed}", {"amountCents": 6000})
    await world.run("reconciliation")

    await pass_time(world, minutes=10)

    after = await read(world, paid)
    assert [(each["status"], each["error"]["code"]) for each in after["refunds"]] == [("failed", "not_left")]
    assert await refunded_at_gateway(world) == ([6000] if deed == "refund" else [])
    assert len(await world.events("invoice.refund_failed")) == 1
    assert (await refund(world, paid, amountCents=3990)).status == 200
    assert await world.broken() == []


async def test_a_refund_that_was_made_is_not_failed_by_its_own_entry(world: World, paid: Json) -> None:
    """[D-53 lost answer]"""
    await queue_fault(world, "refund_charge", "timeout_after")
    assert (await refund(world, paid)).status == 202

    await pass_time(world, minutes=10)

    assert [each["status"] for each in (await read(world, paid))["refunds"]] == ["done"]
    assert await refunded_at_gateway(world) == [9990]


@pytest.mark.parametrize("state", ["ready", "issued", "free"])
async def test_an_invoice_without_payments_is_not_refundable(world: World, state: str) -> None:
    """[D-67 refund]"""
    if state == "free":
        subscription = await world.enroll(await world.plan(await world.product(0)))
        await world.run("generation")
        (invoice,) = await world.invoices(subscription)
        assert invoice["status"] == "paid"
    else:
        invoice = await (ready_invoice if state == "ready" else issued_invoice)(world)

    answer = await refund(world, invoice)

    assert (answer.status, answer.type) == (409, "engine.invoice_not_refundable")


async def test_a_connection_without_refunds_refuses(world: World, paid: Json) -> None:
    """[D-67 refund]"""
    assert (await world.get("/v1/integration")).json["gateways"][0]["refunds"] is True
    await world.set_up_gateway(refunds=False)
    assert (await world.get("/v1/integration")).json["gateways"][0]["refunds"] is False

    answer = await refund(world, paid)

    assert (answer.status, answer.type) == (422, "engine.refund_unsupported")
    assert (await read(world, paid))["refunds"] == []


async def test_nothing_is_sent_to_an_inactive_connection(world: World, paid: Json) -> None:
    """The first refund was not made, so it waits until the connection is active.

    The outcome of the second refund is unknown, so the engine looks it up. [D-151, D-55 inactive]
    """
    await queue_fault(world, "refund_charge", "rate_limited")
    assert (await refund(world, paid, amountCents=4000)).status == 202
    await patch_connection(world, active=False)
    await pass_time(world, days=1)
    assert await refunded_at_gateway(world) == []
    await patch_connection(world, active=True)
    await pass_time(world, hours=2)
    assert await refunded_at_gateway(world) == [4000]

    await queue_fault(world, "refund_charge", "timeout_after")
    assert (await refund(world, paid, amountCents=1000)).status == 202
    await patch_connection(world, active=False)
    await pass_time(world, minutes=1)
    assert (await read(world, paid))["refundedCents"] == 5000
    answer = await refund(world, paid)
    assert (answer.status, answer.type) == (409, "engine.invoice_not_refundable")
    assert await world.broken() == []


async def test_a_forgotten_charge_cannot_be_refunded(world: World, paid: Json) -> None:
    """[D-53 refused]"""
    await world.made(f"/v1/sandbox/charges/{paid['gatewayInvoiceId']}/forget")

    answer = await refund(world, paid)

    assert (answer.status, answer.type) == (422, "engine.refund_refused")
    assert answer.json["meta"]["code"] == "charge_missing"


async def test_a_recovering_account_refunds_nothing(world: World, paid: Json) -> None:
    """[D-123]"""
    await world.sql("UPDATE account SET recovering_since = now()")

    answer = await refund(world, paid)

    assert (answer.status, answer.type) == (503, "engine.account_recovering")
    assert await refunded_at_gateway(world) == []


async def test_the_database_refuses_more_than_is_left(world: World, paid: Json) -> None:
    """[D-53 concurrent]"""
    account = await load_account(world.deps, world.account_id)
    await store(world, account, paid, key="first", amount_cents=9990)
    copy = """
        INSERT INTO refund_request SELECT (jsonb_populate_record(r, $1::jsonb)).* FROM refund_request r
    """
    for changed, constraint in (
        ('{"amount_cents": 9991}', "refund_request_amount"),
        (f'{{"refund_id": "{UNKNOWN_ID}"}}', "refund_request_one_open"),
    ):
        with pytest.raises(Exception, match=constraint):
            await world.sql(copy, changed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"amountCents": 0},
        {"amountCents": -1},
        {"amountCents": 1.0},
        {"amountCents": "1"},
        {"reason": ""},
        {"reason": "x" * 501},
        {"cents": 1},
    ],
    ids=str,
)
async def test_an_invalid_refund_is_refused(world: World, paid: Json, wrong: Json) -> None:
    """[D-53 400]"""
    answer = await refund(world, paid, **wrong)
    assert (answer.status, answer.type) == (400, "engine.invalid_request")
    assert (await read(world, paid))["refunds"] == []


async def test_a_refund_needs_a_key_and_an_invoice(world: World, paid: Json) -> None:
    """[D-53 key, spec 5.4]"""
    without = await world.post(f"/v1/invoices/{paid['id']}/refunds", {}, key=None)
    assert (without.status, without.type) == (400, "engine.idempotency_key_required")
    other = await world.another()
    for sought in (UNKNOWN_ID, paid["id"], "7"):
        answer = await other.post(f"/v1/invoices/{sought}/refunds", {})
        assert problem(answer) == (404, "engine.not_found", None)
