"""An invoice with many ledger entries: its detail, the list of all entries, and the limits of payments and refunds."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import pytest

from fatura.domain.payments import MAX_MANUAL_PAYMENTS, SHOWN_ENTRIES, PaymentEntry
from fatura.domain.refunds import MAX_REFUNDS
from fatura.store.billing import payment_entries
from fatura.store.db import Tx
from fatura.usecases.payments import gateway_payments
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.transaction import Work
from tests.support.refund_steps import paid_invoice, refund, refunded_at_gateway
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import (
    charges,
    end_leases,
    pass_time,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.sweep_steps import DOUBLE_ID, double_silently, second_charge_events, sweep
from tests.support.world import Answer, Json, World

pytestmark = pytest.mark.faults


async def record(world: World, invoice: Json, **body: Json) -> Answer:
    return await world.post(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash", **body}, key="fresh")


async def test_a_long_ledger_is_shown_in_part_and_listed_whole(world: World) -> None:
    """[D-178, D-178 manual]"""
    invoice = await unpaid_invoice(world)
    for cents in range(1, MAX_MANUAL_PAYMENTS + 1):
        assert (await record(world, invoice, amountCents=cents)).status == 200
    refused = await record(world, invoice, amountCents=1)
    assert (refused.status, refused.type) == (422, "engine.too_many_payments")
    assert refused.json["meta"] == {"limit": MAX_MANUAL_PAYMENTS}

    paid = (await record(world, invoice)).json

    count = MAX_MANUAL_PAYMENTS + 1
    assert (paid["status"], paid["paidCents"], paid["paymentCount"]) == ("paid", 9990, count)
    assert len(paid["payments"]) == SHOWN_ENTRIES
    (event,) = await world.events("invoice.paid")
    assert event["data"]["invoice"]["payments"] == paid["payments"]
    assert event["data"]["invoice"]["paymentCount"] == count
    pages = [
        (await world.get(f"/v1/invoices/{invoice['id']}/payments?pageSize=40&page={page}")).json
        for page in (1, 2, 3)
    ]
    assert pages[0]["pagination"]["totalRecords"] == count
    listed = [each for page in pages for each in page["data"]]
    assert sorted(each["amountCents"] for each in listed) == sorted([9990 - 5050, *range(1, count)])
    assert {each["id"] for each in listed[:SHOWN_ENTRIES]} == {each["id"] for each in paid["payments"]}
    assert (await read(world, invoice))["payments"] == paid["payments"]
    assert await world.broken() == []


@pytest.mark.parametrize("by_hand", [False, True])
async def test_after_many_refunds_only_a_refund_of_the_whole_rest_is_accepted(
    world: World, *, by_hand: bool
) -> None:
    """[D-178, D-178 refunds]"""
    if by_hand:
        invoice = (await record(world, await unpaid_invoice(world))).json
    else:
        invoice = await paid_invoice(world)
    for _ in range(MAX_REFUNDS):
        assert (await refund(world, invoice, amountCents=1)).status == 200

    refused = await refund(world, invoice, amountCents=9889)

    assert (refused.status, refused.type) == (422, "engine.too_many_refunds")
    assert refused.json["meta"] == {"limit": MAX_REFUNDS, "refundableCents": 9890}
    assert (await refund(world, invoice, amountCents=9891)).type == "engine.amount_exceeds_paid"
    refunded = (await refund(world, invoice)).json
    assert (refunded["refundedCents"], refunded["paymentCount"]) == (9990, MAX_REFUNDS + 2)
    assert len(await refunded_at_gateway(world)) == (0 if by_hand else MAX_REFUNDS + 1)
    assert await world.broken() == []


async def test_failed_refunds_count_towards_the_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-178, D-178 refunds]"""
    monkeypatch.setattr("fatura.domain.refunds.MAX_REFUNDS", 3)
    invoice = await paid_invoice(world)
    assert (await refund(world, invoice, amountCents=1)).status == 200
    await queue_fault(world, "refund_charge", "rejected", times=2)
    for _ in range(2):
        assert (await refund(world, invoice, amountCents=1)).type == "engine.refund_refused"

    refused = await refund(world, invoice, amountCents=1)

    assert (refused.status, refused.type) == (422, "engine.too_many_refunds")
    assert "3 refunds, of which 2 failed" in refused.json["detail"]
    assert (await refund(world, invoice, amountCents=9989)).json["refundedCents"] == 9990


async def test_the_payments_of_an_unknown_invoice_are_not_found(world: World) -> None:
    """[D-178]"""
    invoice = await unpaid_invoice(world)
    assert (await world.get(f"/v1/invoices/{invoice['subscriptionId']}/payments")).status == 404
    other = await world.another()
    assert (await other.get(f"/v1/invoices/{invoice['id']}/payments")).status == 404


MANY_PAYMENTS = """
    UPDATE sandbox_charge SET status = 'paid', entries = (
        SELECT jsonb_agg(jsonb_build_object('kind', 'payment', 'reference', 'part_' || n, 'amount_cents', 30,
            'occurred_at', created_at + n * interval '1 millisecond'))
        FROM generate_series(1, 350) AS n
    )
"""

PAYMENTS_THEN_REFUNDS = """
    UPDATE sandbox_charge SET status = 'paid', entries = (
        SELECT jsonb_agg(jsonb_build_object('kind', CASE WHEN n <= 100 THEN 'payment' ELSE 'refund' END,
            'reference', 'part_' || n, 'amount_cents', 30, 'occurred_at', created_at + n * interval '1 millisecond'))
        FROM generate_series(1, 150) AS n
    ) WHERE is_double
"""


async def test_many_new_entries_are_recorded_in_batches(world: World) -> None:
    """Of 350 payments of 30 cents, the first 333 cover the total of 99.90. [D-178, D-50]"""
    invoice = await unpaid_invoice(world)
    await world.sql(MANY_PAYMENTS)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    for _ in range(2):
        await world.run("reconciliation")

    paid = await read(world, invoice)
    assert (paid["status"], paid["paidCents"], paid["paymentCount"]) == ("paid", 10_500, 350)
    assert [each["status"] for each in paid["charges"]] == ["paid"]
    batches = await world.sql("SELECT count(*) AS entries FROM payment_entry GROUP BY xmin::text::bigint")
    assert sorted(each["entries"] for each in batches) == [50, 100, 100, 100]
    assert len(await world.events("invoice.partially_paid")) == 332
    assert len(await world.events("invoice.paid")) == 1
    assert len(await world.events("invoice.overpaid")) > 0
    assert await world.broken() == []


@pytest.mark.parametrize("days", [1, 140])
async def test_the_batches_of_a_worker_that_dies_are_completed_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """The worker dies after the batch that covers the total. [D-178, D-50]"""
    invoice = await unpaid_invoice(world)
    await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await world.sql("UPDATE invoice SET next_attempt_at = '2900-01-01'")
    await pass_time(world, days=days)
    await world.sql(MANY_PAYMENTS.replace("30,", "100,"))
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    record_oldest = gateway_payments._record_oldest
    batches = 0

    async def dies_after_one(work: Work, answer: ChargeAnswer) -> bool:
        nonlocal batches
        batches += 1
        if batches > 1:
            raise asyncio.CancelledError
        return await record_oldest(work, answer)

    with monkeypatch.context() as patched, suppress(asyncio.CancelledError):
        patched.setattr(gateway_payments, "_record_oldest", dies_after_one)
        await world.run("reconciliation")
    assert (await read(world, invoice))["paidCents"] == 10_000
    await end_leases(world)
    await world.run("reconciliation")

    paid = await read(world, invoice)
    assert (paid["status"], paid["paidCents"]) == ("paid", 35_000)
    assert [each["status"] for each in paid["charges"]] == ["paid"]


async def test_an_open_charge_that_batches_cover_is_canceled_although_the_cancellation_fails(
    world: World,
) -> None:
    """[D-178, D-50]"""
    invoice = await unpaid_invoice(world)
    await world.sql(MANY_PAYMENTS.replace("'paid'", "'open'").replace("30,", "100,"))
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await queue_fault(world, "cancel_charge", "rate_limited", times=2)
    await world.run("reconciliation")

    await pass_time(world, minutes=15)

    assert [each["status"] for each in await charges(world, invoice)] == ["canceled"]


@pytest.mark.parametrize("is_second", [True, False], ids=["look", "late look-up"])
async def test_sweeps_looks_and_late_look_ups_record_batches(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_second: bool
) -> None:
    """A sweep finds 350 payments of a second charge, or of a replaced charge of a `ready` invoice.

    The ledger is read a few times for each batch, and not for each entry. [D-178, D-50, D-161]
    """
    invoice = await unpaid_invoice(world)
    await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
    many = MANY_PAYMENTS
    if is_second:
        await double_silently(world, invoice)
        many += " WHERE is_double"
    else:
        await ask(world, invoice)
    await world.sql(many)
    newest_of_invoices, reads = payment_entries.newest_of_invoices, 0

    async def counted(tx: Tx, ids: Sequence[UUID], *, limit: int) -> Mapping[UUID, Sequence[PaymentEntry]]:
        nonlocal reads
        reads += 1
        return await newest_of_invoices(tx, ids, limit=limit)

    with monkeypatch.context() as patched:
        patched.setattr(payment_entries, "newest_of_invoices", counted)
        await sweep(world)

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"], shown["paymentCount"]) == ("paid", 10_500, 350)
    batches = await world.sql("SELECT count(*) AS entries FROM payment_entry GROUP BY xmin::text::bigint")
    assert sorted(each["entries"] for each in batches) == [50, 100, 100, 100]
    assert len(await world.events("invoice.partially_paid")) == 332
    assert reads < 20
    assert await world.broken() == []


@pytest.mark.parametrize("is_looked_at", [True, False], ids=["look", "late look-up"])
async def test_a_second_charge_with_many_entries_is_reported_and_looked_at_again(
    world: World, *, is_looked_at: bool
) -> None:
    """The final batch has only refunds. [D-178, D-125]"""
    invoice = await unpaid_invoice(world)
    second = await double_silently(world, invoice)
    await world.sql(PAYMENTS_THEN_REFUNDS)
    if is_looked_at:
        await sweep(world)
    else:
        await world.sql(
            "INSERT INTO late_charge_check (account_id, charge_id, connection_id, next_check_at) "
            "SELECT account_id, charge_id, connection_id, '2000-01-01' FROM charge"
        )
        await world.run("reconciliation")

    assert (await read(world, invoice))["paymentCount"] == 150
    assert await second_charge_events(world) == [second]
    assert await world.sql("SELECT FROM unmatched_charge WHERE next_look_at IS NULL") == []
    assert await world.broken() == []


async def test_batches_of_a_second_charge_pay_an_invoice_that_was_never_issued(world: World) -> None:
    """The invoice has no charge of its own to poll. [D-178, D-50]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected")
    await world.run("issuance")
    await world.sql(
        """
        INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents, currency,
            payment_method, due_date, status, created_at)
        SELECT account_id, $1, connection_id, invoice_id, 1, total_cents, currency, 'pix', due_date, 'open',
            created_at
        FROM invoice
        """,
        DOUBLE_ID,
    )
    await world.sql(MANY_PAYMENTS.replace("30,", "100,"))
    await sweep(world)
    await world.run("reconciliation")

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", 35_000)
    assert await world.sql("SELECT next_attempt_at FROM invoice WHERE next_attempt_at IS NOT NULL") == []
    assert await world.broken() == []


@pytest.mark.parametrize("covers_total", [False, True])
async def test_a_look_at_a_canceled_charge_with_another_amount_records_batches(
    world: World, *, covers_total: bool
) -> None:
    """If the payments cover the total, the invoice adopts the charge before the payments are recorded.

    [D-178, D-170, D-50]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    charge = (await create_unmatched_charge(world, UUID(invoice["id"]), 9991)).charge_id
    await world.made(f"/v1/sandbox/charges/{charge}/cancel")
    await compare(world)
    await world.run()
    cents = 30 if covers_total else 20
    await world.sql(MANY_PAYMENTS.replace("'paid'", "'canceled'").replace("30,", f"{cents},"))
    await sweep(world)
    await world.run()

    shown = await read(world, invoice)
    status, gateway_id = ("paid", charge) if covers_total else ("ready", None)
    assert (shown["status"], shown["gatewayInvoiceId"]) == (status, gateway_id)
    assert shown["paidCents"] == 350 * cents
    batches = await world.sql("SELECT count(*) AS entries FROM payment_entry GROUP BY xmin::text::bigint")
    assert covers_total or sorted(each["entries"] for each in batches) == [50, 100, 100, 100]
    assert await world.broken() == []
