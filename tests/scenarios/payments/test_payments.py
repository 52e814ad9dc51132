"""Payments, refunds and disputes that a gateway reports: each is recorded once and updates the invoice."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.store.billing import payment_entries
from fatura.store.db import Tx
from tests.support.sandbox_steps import (
    cancel,
    charges,
    issued_invoice,
    now,
    pass_time,
    pay_silently,
    read,
    refund_silently,
)
from tests.support.world import Json, World, columns, rows


async def deed(world: World, invoice: Json, name: str, **body: Any) -> Json:
    """Run an action, such as `pay`, on the charge at the sandbox gateway, and let the engine poll the charge."""
    moved = await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/{name}", body)
    await world.run("reconciliation")
    return moved


async def told(world: World) -> list[str]:
    """Return the types of the invoice events after the first `invoice.issued`. If there is none, return all types."""
    types = [
        event["type"].removeprefix("invoice.") for event in await world.events() if "invoice" in event["data"]
    ]
    return types[types.index("issued") + 1 :] if "issued" in types else types


@pytest.fixture
async def issued(world: World) -> Json:
    """Return an issued invoice of 99.90 that nobody pays."""
    await world.set_up_gateway(behaviour="never_pay")
    return await issued_invoice(world)


async def test_payments_add_up_to_the_total(world: World, issued: Json) -> None:
    """`paidAt` is the instant of the payment that covered the total. [D-50, D-61]"""
    await deed(world, issued, "pay", amountCents=4000)
    part = await read(world, issued)
    assert (part["status"], part["paidCents"], part["paidAt"]) == ("issued", 4000, None)
    at = (await now(world)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    await deed(world, issued, "pay", paidAt=at)

    paid = await read(world, issued)
    assert (paid["status"], paid["paidCents"], paid["refundedCents"], paid["paidAt"]) == ("paid", 9990, 0, at)
    assert columns(paid["payments"], "kind", "amountCents", "feeCents", "currency", "source", "note") == rows("""
        kind    | amount | fee | currency | source  | note
        payment | 4000   | 0   | BRL      | gateway | None
        payment | 5990   | 0   | BRL      | gateway | None
    """)
    assert paid["payments"][1]["occurredAt"] == at
    assert await told(world) == ["partially_paid", "paid"]
    (event,) = await world.events("invoice.partially_paid")
    assert event["data"]["entry"] == paid["payments"][0]
    assert event["data"]["invoice"]["payments"] == part["payments"]
    (listed,) = await world.invoices()
    assert (listed["paidCents"], "payments" in listed) == (9990, False)
    assert await world.broken() == []


async def test_more_than_the_total_is_reported(world: World, issued: Json) -> None:
    """[D-50]"""
    await deed(world, issued, "pay", amountCents=10_000)
    await deed(world, issued, "pay", amountCents=5)

    paid = await read(world, issued)
    assert (paid["status"], paid["paidCents"]) == ("paid", 10_005)
    assert await told(world) == ["paid", "overpaid", "overpaid"]
    amounts = [event["data"]["entry"]["amountCents"] for event in await world.events("invoice.overpaid")]
    assert amounts == [10_000, 5]
    assert await world.broken() == []


async def test_a_refunded_part_is_not_overpaid(world: World, issued: Json) -> None:
    """[D-50]"""
    await deed(world, issued, "pay", amountCents=4000)
    await deed(world, issued, "refund")
    await deed(world, issued, "pay", amountCents=9990)
    assert await told(world) == ["partially_paid", "refunded", "paid"]
    assert await world.broken() == []


async def test_a_partly_paid_invoice_becomes_overdue_and_can_still_be_paid(
    world: World, issued: Json
) -> None:
    """[D-67 overdue, D-26]"""
    await deed(world, issued, "pay", amountCents=9989)
    await pass_time(world, days=5)
    assert (await read(world, issued))["status"] == "overdue"

    await deed(world, issued, "pay", amountCents=1)

    assert (await read(world, issued))["status"] == "paid"
    assert await told(world) == ["partially_paid", "overdue", "paid"]
    assert await world.broken() == []


async def test_refunded_at_is_set_when_refunds_cover_what_was_paid(world: World, issued: Json) -> None:
    """[D-50, D-27]"""
    await deed(world, issued, "pay")
    await deed(world, issued, "refund", amountCents=4000)
    part = await read(world, issued)
    assert (part["status"], part["refundedCents"], part["refundedAt"]) == ("paid", 4000, None)

    await deed(world, issued, "refund")

    refunded = await read(world, issued)
    assert (refunded["status"], refunded["paidCents"], refunded["refundedCents"]) == ("paid", 9990, 9990)
    events = await world.events("invoice.refunded")
    assert refunded["refundedAt"] == events[-1]["createdAt"]
    assert [event["data"]["entry"]["amountCents"] for event in events] == [4000, 5990]
    assert await told(world) == ["paid", "refunded", "refunded"]
    assert await world.broken() == []


@pytest.mark.parametrize("won", [True, False])
async def test_a_dispute_is_shown_until_it_is_won(world: World, issued: Json, *, won: bool) -> None:
    """[D-50, D-61]"""
    await deed(world, issued, "pay")
    await deed(world, issued, "dispute", amountCents=5000)
    disputed = await read(world, issued)
    (opened,) = await world.events("invoice.disputed")
    assert disputed["disputedAt"] == opened["createdAt"]

    await deed(world, issued, "dispute-close", won=won)

    closed = await read(world, issued)
    (event,) = await world.events("invoice.dispute_closed")
    assert event["data"]["entry"]["kind"] == ("dispute_won" if won else "dispute_lost")
    assert event["data"]["entry"]["amountCents"] == 5000
    assert (closed["status"], closed["disputedAt"]) == ("paid", None if won else disputed["disputedAt"])
    assert await told(world) == ["paid", "disputed", "dispute_closed"]
    assert await world.broken() == []


async def test_one_won_dispute_of_two_keeps_the_other(world: World, issued: Json) -> None:
    """[D-50]"""
    await deed(world, issued, "pay")
    for amount_cents in (1000, 2000):
        await deed(world, issued, "dispute", amountCents=amount_cents)
    disputed = await read(world, issued)

    await deed(world, issued, "dispute-close", won=True)
    assert (await read(world, issued))["disputedAt"] == disputed["disputedAt"]
    await deed(world, issued, "dispute-close", won=True)

    assert (await read(world, issued))["disputedAt"] is None
    assert await world.broken() == []


async def test_a_refunded_part_payment_does_not_count_towards_the_total(world: World, issued: Json) -> None:
    """[D-150]"""
    await deed(world, issued, "pay", amountCents=5000)
    await deed(world, issued, "refund")
    await deed(world, issued, "pay", amountCents=5000)

    part = await read(world, issued)
    assert (part["status"], part["paidCents"], part["refundedCents"]) == ("issued", 10_000, 5000)
    await deed(world, issued, "pay", amountCents=4990)
    assert (await read(world, issued))["status"] == "paid"
    assert await world.broken() == []


async def test_a_payment_on_a_canceled_invoice_is_recorded_and_reported(world: World, issued: Json) -> None:
    """[D-50, D-27 payment unexpected]"""
    assert (await cancel(world, issued)).status == 200

    for amount_cents in (4000, 9990):
        await deed(world, issued, "pay", amountCents=amount_cents)
    await deed(world, issued, "refund", amountCents=13_990)

    canceled = await read(world, issued)
    assert (canceled["status"], canceled["paidCents"], canceled["refundedCents"]) == (
        "canceled",
        13_990,
        13_990,
    )
    assert await told(world) == ["canceled", "payment_unexpected", "payment_unexpected", "refunded"]
    assert await world.broken() == []


async def test_the_payment_of_a_second_charge_pays_the_invoice(world: World, issued: Json) -> None:
    """Fatura cancels the invoice's first charge, which a payer could still pay. [D-50, D-61, D-125]"""
    path = f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/double"
    second = (await world.made(path))["chargeId"]
    await world.made(f"/v1/sandbox/charges/{second}/pay")

    await world.run("reconciliation")
    await world.run("reconciliation")

    paid = await read(world, issued)
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert {each["chargeId"]: each["status"] for each in await charges(world)} == {
        second: "paid",
        issued["gatewayInvoiceId"]: "canceled",
    }
    assert await told(world) == ["issue_failed", "payment_unexpected", "paid"]
    assert await world.broken() == []


async def test_both_of_two_charges_are_paid(world: World, issued: Json) -> None:
    """[D-50]"""
    await deed(world, issued, "pay")
    second = (await world.made(f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/double"))["chargeId"]
    await world.made(f"/v1/sandbox/charges/{second}/pay")

    await world.run("reconciliation")

    assert (await read(world, issued))["paidCents"] == 19_980
    assert await told(world) == ["paid", "issue_failed", "payment_unexpected", "overpaid"]
    assert await world.broken() == []


async def test_an_unpaid_second_charge_is_canceled(world: World, issued: Json) -> None:
    """[D-61, D-125]"""
    second = (await deed(world, issued, "double"))["chargeId"]

    statuses = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert statuses == {second: "canceled", issued["gatewayInvoiceId"]: "open"}


@pytest.mark.faults
async def test_a_poll_finds_refunds_without_a_webhook(world: World, issued: Json) -> None:
    """A paid charge is polled 1, 7, 30, 60 and 120 days after the payment. [D-55 paid charges]"""
    await deed(world, issued, "pay")
    await pass_time(world, days=59)
    assert await world.events("invoice.refunded") == []

    await refund_silently(world)
    await pass_time(world, days=2)

    assert len(await world.events("invoice.refunded")) == 1
    assert (await read(world, issued))["refundedCents"] == 9990


async def test_a_paid_charge_is_polled_five_times(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-55 paid charges]"""
    await world.post(f"/v1/subscriptions/{issued['subscriptionId']}/cancel")
    await deed(world, issued, "pay")
    counted_from = await now(world) - timedelta(minutes=1)  # a poll exactly a day later counts as day 1
    polled: list[timedelta] = []
    get_charge = SandboxGateway.get_charge

    async def noted(gateway: SandboxGateway, charge_id: str) -> Charge:
        polled.append(gateway._config.now - counted_from)
        return await get_charge(gateway, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", noted)
    await pass_time(world, days=400)
    assert [each.days for each in polled] == [1, 7, 30, 60, 120]


BAD_ENTRIES: list[dict[str, Any]] = [
    {"amount_cents": "9990"},
    {"amount_cents": 99.9},
    {"amount_cents": True},
    {"amount_cents": 0},
    {"amount_cents": -9990},
    {"amount_cents": 10**19},
    {"fee_cents": None},
    {"currency": "USD"},
    {"reference": ""},
    {"reference": "a\x00b"},
    {"reference": 7},
    {"occurred_at": "2033-11-20"},
    {"occurred_at": None},
    {"occurred_at": datetime.min.replace(tzinfo=UTC)},
    {"occurred_at": datetime(1999, 12, 31, 23, 59, tzinfo=UTC)},
    {"kind": "payment"},
    {"kind": EntryKind.REFUND},
    {"kind": EntryKind.DISPUTE_WON},
]


@pytest.mark.parametrize("wrong", BAD_ENTRIES, ids=str)
async def test_a_malformed_answer_fails_only_its_own_charge(
    world: World, issued: Json, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-50]"""
    other = await issued_invoice(world)
    await pay_silently(world)
    get_charge = SandboxGateway.get_charge

    async def lies(gateway: SandboxGateway, charge_id: str) -> Charge:
        charge = await get_charge(gateway, charge_id)
        if charge_id != issued["gatewayInvoiceId"]:
            return charge
        return replace(charge, entries=tuple(replace(each, **wrong) for each in charge.entries))

    monkeypatch.setattr(SandboxGateway, "get_charge", lies)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    assert (await read(world, other))["status"] == "paid"
    assert (await read(world, issued))["payments"] == []

    monkeypatch.undo()
    await pass_time(world, minutes=11)
    assert (await read(world, issued))["status"] == "paid"


async def test_a_reference_is_recorded_once_for_a_connection(world: World, issued: Json) -> None:
    """If a provider gives payments of two charges the same `reference`, only one of them is recorded. [D-50]"""
    other = await issued_invoice(world)
    await pay_silently(world, issued["gatewayInvoiceId"])
    await world.sql(
        "UPDATE sandbox_charge SET status = 'paid', entries = (SELECT x.entries FROM sandbox_charge x "
        "WHERE x.charge_id = $1) WHERE charge_id <> $1",
        issued["gatewayInvoiceId"],
    )
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")

    await world.run("reconciliation")

    entries = [await read(world, each) for each in (issued, other)]
    assert sorted(each["paidCents"] for each in entries) == [0, 9990]
    assert len(await world.events("invoice.paid")) == 1


async def test_sandbox_payments_are_checked(world: World, issued: Json) -> None:
    """[D-61, D-101]"""
    path = f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}"
    later = (await now(world) + timedelta(hours=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for name, body in (
        ("pay", {"amountCents": 0}),
        ("pay", {"amountCents": 1.0}),
        ("pay", {"paidAt": later}),
        ("pay", {"paidAt": "yesterday"}),
        ("pay", {"paidAt": "0001-01-01T00:00:00Z"}),
        ("refund", {"amountCents": -1}),
        ("dispute", {"cents": 1}),
        ("dispute-close", {}),
        ("dispute-close", {"won": 1}),
    ):
        answer = await world.post(f"{path}/{name}", body)
        assert (answer.status, answer.type) == (400, "engine.invalid_request"), (name, body)
    await world.made(f"{path}/pay", {"amountCents": 100})
    for name, body in (
        ("refund", {"amountCents": 101}),
        ("dispute", {"amountCents": 101}),
        ("dispute-close", {"won": True}),
    ):
        answer = await world.post(f"{path}/{name}", body)
        assert (answer.status, answer.type) == (409, "engine.sandbox_charge_conflict"), (name, body)
    for name in ("double", "forget", "dispute"):
        answer = await world.post(f"/v1/sandbox/charges/sbx_{uuid4().hex}/{name}")
        assert answer.status == 404


async def test_a_forgotten_charge_is_unknown_to_the_gateway(world: World, issued: Json) -> None:
    """[D-61]"""
    await deed(world, issued, "forget")

    assert await charges(world) == []
    assert (await read(world, issued))["status"] == "issued"
    path = f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/pay"
    assert (await world.post(path)).status == 404


async def test_an_answer_that_cannot_be_recorded_delays_only_its_own_charge(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer for the other charge is recorded. The failing charge is polled again after ten minutes.
    [D-50]
    """
    other = await issued_invoice(world)
    await pay_silently(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    add = payment_entries.add
    failing = issued["id"]

    async def fails_for_one(tx: Tx, entries: Sequence[PaymentEntry]) -> None:
        if failing in {str(each.invoice_id) for each in entries}:
            raise RuntimeError("a bug")
        await add(tx, entries)

    monkeypatch.setattr(payment_entries, "add", fails_for_one)
    assert await world.run("reconciliation") == 2
    assert [(await read(world, each))["status"] for each in (issued, other)] == ["issued", "paid"]

    monkeypatch.undo()
    await pass_time(world, minutes=11)
    assert (await read(world, issued))["status"] == "paid"
    assert await world.broken() == []
