"""How the adapter of Mercado Pago reads payments, cancels charges and refunds them (D-265)."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.checked import CheckedGateway
from fatura.gateways.port import (
    ChargeState,
    NotFoundError,
    PermanentError,
    Refund,
    RefundState,
    UnknownOutcomeError,
)
from tests.contract.mercado_pago_provider import MercadoPagoProvider, opened_provider
from tests.contract.provider import NOW, charge_request, refund_request
from tests.doubles.mercado_pago import book
from tests.doubles.mercado_pago.book import Account
from tests.doubles.server import Loss


@pytest.fixture
async def provider() -> AsyncGenerator[MercadoPagoProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: MercadoPagoProvider) -> Any:
    return await provider.connect()


@pytest.fixture
async def account(gateway: Any, provider: MercadoPagoProvider) -> Account:
    return provider.account(gateway)


def entries(charge: Any) -> list[tuple[str, int]]:
    return [(str(each.kind), each.amount_cents) for each in charge.entries]


@pytest.mark.parametrize(
    ("payments", "state", "paid"),
    [
        ([], "open", []),
        (["pending"], "open", []),
        (["in_process"], "open", []),
        (["authorized"], "open", []),
        (["rejected"], "refused", []),
        (["cancelled"], "open", []),
        (["rejected", "pending"], "open", []),
        (["pending", "rejected"], "open", []),
        (["cancelled", "rejected"], "refused", []),
        (["rejected", "cancelled"], "open", []),
        (["rejected", "approved"], "paid", [9990]),
        (["approved", "rejected"], "paid", [9990]),
        (["approved", "approved"], "paid", [9990, 9990]),
    ],
)
async def test_the_payments_decide_the_state(
    gateway: Any, account: Account, payments: list[str], state: str, paid: list[int]
) -> None:
    """A second payment is an entry of its own, so the engine reports that the invoice is overpaid. [D-265, D-50]"""
    charge = await gateway.create_charge(charge_request(PaymentMethod.CARD))
    for number, status in enumerate(payments):
        made = account.attempt(charge.charge_id, status)
        made["date_created"] = (NOW + timedelta(seconds=number)).isoformat()

    found = await gateway.get_charge(charge.charge_id)
    assert (str(found.state), [amount for _, amount in entries(found)]) == (state, paid)
    assert await gateway.find_charges(charge.invoice_id, 1) == [found]
    assert [each.fee_cents for each in found.entries] == [498 for _ in paid], "only what the merchant pays"


async def test_part_payments_leave_the_charge_open(gateway: Any, account: Account) -> None:
    """A payer can pay with two cards. [D-265, D-50]"""
    charge = await gateway.create_charge(charge_request(PaymentMethod.CARD))
    account.attempt(charge.charge_id, transaction_amount=50)
    assert (await gateway.get_charge(charge.charge_id)).state is ChargeState.OPEN
    account.attempt(charge.charge_id, transaction_amount=49.9)
    both = await gateway.get_charge(charge.charge_id)
    assert (both.state, entries(both)) == (ChargeState.PAID, [("payment", 5000), ("payment", 4990)])


@pytest.mark.parametrize(
    ("status", "detail", "kinds"),
    [
        ("in_mediation", "pending", ["payment", "dispute_opened"]),
        ("charged_back", "in_process", ["payment", "dispute_opened"]),
        ("charged_back", "settled", ["payment", "dispute_opened", "dispute_lost"]),
        ("charged_back", "reimbursed", ["payment", "dispute_opened", "dispute_won"]),
    ],
)
async def test_a_disputed_charge_stays_paid(
    gateway: Any, account: Account, status: str, detail: str, kinds: list[str]
) -> None:
    """All steps of a dispute have one reference. [D-265, D-50]"""
    charge = await gateway.create_charge(charge_request(PaymentMethod.CARD))
    account.settle(account.attempt(charge.charge_id)["id"], status, detail)
    found = await CheckedGateway(gateway, currency="BRL", now=NOW).get_charge(charge.charge_id)
    assert found.state is ChargeState.PAID
    assert [kind for kind, _ in entries(found)] == kinds
    assert len({each.reference for each in found.entries[1:]}) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "liquidated"},
        {"transaction_amount": "a lot"},
        {"transaction_amount": 10.005},
        {"transaction_amount": 1e300},
        {"currency_id": "ARS"},
        {"date_approved": "yesterday"},
        {"date_approved": "2026-03-10T12:00:00"},
        {"date_approved": "2026-03-12T12:00:00Z"},
        {"status": "refunded"},
        {"transaction_amount_refunded": 10},
    ],
)
async def test_nothing_is_read_from_a_payment_that_is_not_understood(
    gateway: Any, account: Account, provider: MercadoPagoProvider, wrong: dict[str, Any]
) -> None:
    """A refunded payment whose refunds are not listed is one of them. [D-265, D-50]"""
    provider.double.contract = None
    checked = CheckedGateway(gateway, currency="BRL", now=NOW)
    charge = await gateway.create_charge(charge_request())
    account.attempt(charge.charge_id, "rejected")
    account.attempt(charge.charge_id).update(wrong)

    with pytest.raises(InvalidFieldError):
        await checked.get_charge(charge.charge_id)
    with pytest.raises(InvalidFieldError):
        await checked.find_charges(charge.invoice_id, 1)


async def test_unknown_fields_and_metadata_are_ignored(
    gateway: Any, account: Account, provider: MercadoPagoProvider
) -> None:
    """[D-265, D-34]"""
    charge = await gateway.create_charge(charge_request())
    account.attempt(charge.charge_id)
    provider.double.contract = None
    for metadata in (None, [], "text", {"fatura_nonce": 7}, {"fatura_until": ""}):
        account.preference(charge.charge_id)["metadata"] = metadata
        provider.double.edit = lambda answer: answer.update(new={"amount": 1.5}, tags=None)
        assert (await gateway.get_charge(charge.charge_id)).state is ChargeState.PAID


async def test_all_pages_of_payments_are_read(gateway: Any, account: Account) -> None:
    """A payment that another account received does not count. [D-265]"""
    charge = await gateway.create_charge(charge_request(PaymentMethod.CARD))
    account.attempt(charge.charge_id)
    for _ in range(120):
        account.attempt(charge.charge_id, "rejected")
    oldest = account.payments[min(account.payments)]
    oldest["collector_id"] = 7
    assert (await gateway.get_charge(charge.charge_id)).state is ChargeState.REFUSED
    oldest["collector_id"] = account.user_id
    assert (await gateway.get_charge(charge.charge_id)).state is ChargeState.PAID


@pytest.mark.parametrize("keeps_metadata", [True, False])
async def test_each_payment_belongs_to_the_preference_that_was_paid(
    gateway: Any, account: Account, *, keeps_metadata: bool
) -> None:
    """Two preferences have one reference. Without metadata, a payment counts for both, so that none is missed.

    [D-33, D-265]
    """
    account.keeps_metadata = keeps_metadata
    request = charge_request()
    first, second = await gateway.create_charge(request), await gateway.create_charge(request)
    payment = account.attempt(second.charge_id)

    found = await gateway.find_charges(request.invoice_id, 1)
    assert [each.charge_id for each in found] == [first.charge_id, second.charge_id]
    expected = [ChargeState.OPEN if keeps_metadata else ChargeState.PAID, ChargeState.PAID]
    assert [each.state for each in found] == expected
    assert {each.reference for charge in found for each in charge.entries} == {str(payment["id"])}
    canceled = await gateway.cancel_charge(first.charge_id)
    assert canceled.state is (ChargeState.CANCELED if keeps_metadata else ChargeState.PAID)


async def test_a_link_ends_with_its_last_day(gateway: Any, account: Account) -> None:
    """A boleto that was issued before can still be paid. [D-265, D-26]"""
    charge = await gateway.create_charge(charge_request(PaymentMethod.BOLETO))
    boleto = account.attempt(charge.charge_id, "pending")
    gateway._config = replace(gateway._config, now=NOW + timedelta(days=30))

    assert (await gateway.get_charge(charge.charge_id)).state is ChargeState.OPEN
    account.settle(boleto["id"], "cancelled", "expired")
    expired = await gateway.get_charge(charge.charge_id)
    assert expired.state is ChargeState.EXPIRED
    assert await gateway.cancel_charge(charge.charge_id) == expired


async def test_the_link_of_a_paid_charge_is_ended(
    gateway: Any, account: Account, provider: MercadoPagoProvider
) -> None:
    """Otherwise, the payer could pay the same link again. A poll whose change fails still answers. [D-265, D-50]"""
    charge = await gateway.create_charge(charge_request())
    pending = account.attempt(charge.charge_id, "pending")
    assert (await gateway.get_charge(charge.charge_id)).state is ChargeState.OPEN
    assert account.is_payable(account.preference(charge.charge_id))
    account.attempt(charge.charge_id)
    provider.double.fail_next("PUT", "/checkout/.*", Loss.REQUEST)
    provider.double.fail_next("PUT", "/checkout/.*", Loss.REQUEST)
    first = await gateway.get_charge(charge.charge_id)
    assert account.is_payable(account.preference(charge.charge_id))

    provider.double.faults.clear()
    second = await gateway.get_charge(charge.charge_id)
    assert (second.state, second.entries) == (first.state, first.entries) == (ChargeState.PAID, first.entries)
    assert not account.is_payable(account.preference(charge.charge_id))
    assert pending["status"] == "cancelled"
    sent = len(provider.double.requests)
    assert await gateway.get_charge(charge.charge_id) == second
    assert {method for method, _ in provider.double.requests[sent:]} == {"GET"}


async def test_a_cancellation_ends_the_link_and_pending_payments(gateway: Any, account: Account) -> None:
    """The preference keeps its other fields. [D-265, D-27]"""
    charge = await gateway.create_charge(charge_request())
    before = dict(account.preference(charge.charge_id))
    pending = [account.attempt(charge.charge_id, status) for status in ("pending", "in_process")]

    canceled = await gateway.cancel_charge(charge.charge_id)
    assert canceled.state is ChargeState.CANCELED
    assert [each["status"] for each in pending] == ["cancelled", "cancelled"]
    after = account.preference(charge.charge_id)
    assert not account.is_payable(after)
    assert {name for name in before if before[name] != after[name]} == {"expiration_date_to"}


async def test_a_payment_that_is_approved_meanwhile_wins(
    gateway: Any, account: Account, provider: MercadoPagoProvider
) -> None:
    """Neither a pending payment nor a new one may be overlooked. [D-265, D-27 not confirmed]"""
    charge = await gateway.create_charge(charge_request())
    pix = account.attempt(charge.charge_id, "pending")

    def approve(method: str, path: str) -> None:
        if method == "PUT" and path.startswith("/v1/payments/"):
            account.settle(pix["id"], "approved")

    provider.double.fails = approve
    paid = await gateway.cancel_charge(charge.charge_id)
    assert (paid.state, entries(paid)) == (ChargeState.PAID, [("payment", 9990)])
    assert await gateway.cancel_charge(charge.charge_id) == paid

    other = await gateway.create_charge(charge_request())

    def pay(method: str, path: str) -> None:
        if method == "PUT" and path.startswith("/checkout"):
            account.attempt(other.charge_id)

    provider.double.fails = pay
    assert (await gateway.cancel_charge(other.charge_id)).state is ChargeState.PAID


async def test_a_pending_payment_that_cannot_be_canceled_keeps_the_charge(
    gateway: Any, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-265, D-27 not confirmed]"""
    charge = await gateway.create_charge(charge_request())
    account.attempt(charge.charge_id, "pending")
    monkeypatch.setattr(book, "CANCELABLE", frozenset[str]())
    with pytest.raises(PermanentError):
        await gateway.cancel_charge(charge.charge_id)
    assert (await gateway.get_charge(charge.charge_id)).state is ChargeState.OPEN
    monkeypatch.undo()
    assert (await gateway.cancel_charge(charge.charge_id)).state is ChargeState.CANCELED


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK, Loss.ERROR_BEFORE, Loss.RATE])
async def test_a_lost_cancellation_of_a_payment_may_be_repeated(
    gateway: Any, account: Account, provider: MercadoPagoProvider, loss: Loss
) -> None:
    """[D-265, D-27 not confirmed]"""
    charge = await gateway.create_charge(charge_request())
    account.attempt(charge.charge_id, "pending")
    provider.double.fail_next("PUT", "/v1/payments/.*", loss)
    with pytest.raises(UnknownOutcomeError):
        await gateway.cancel_charge(charge.charge_id)
    assert (await gateway.cancel_charge(charge.charge_id)).state is ChargeState.CANCELED


async def test_a_refund_in_process_is_pending(gateway: Any, account: Account) -> None:
    """Without a header, Mercado Pago would answer that it refuses such a refund. [D-265, D-53]"""
    account.new_refunds = "in_process"
    charge = await gateway.create_charge(charge_request())
    payment = account.attempt(charge.charge_id)
    requests = [refund_request(charge, 4000), refund_request(charge, 4000)]
    await gateway.refund_charge(requests[0])
    pending = await gateway.refund_charge(requests[1])
    ids = [each.refund_id for each in requests]
    assert pending.refunds == tuple(Refund(each, RefundState.PENDING) for each in ids)
    assert entries(pending) == [("payment", 9990)]

    done, failed = payment["refunds"]
    account.settle_refund(payment, done, "approved")
    account.settle_refund(payment, failed, "rejected")
    found = await gateway.get_charge(charge.charge_id)
    assert [each.state for each in found.refunds] == [RefundState.DONE, RefundState.FAILED]
    assert entries(found) == [("payment", 9990), ("refund", 4000)]


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK])
async def test_a_refund_is_made_once_however_its_steps_fail(
    gateway: Any, account: Account, provider: MercadoPagoProvider, method: str, loss: Loss
) -> None:
    """[D-265, D-53 lost answer]"""
    charge = await gateway.create_charge(charge_request())
    payment = account.attempt(charge.charge_id)
    request = refund_request(charge, 4000)
    path = "/checkout/.*" if method == "PUT" else "/v1/payments/[0-9]+/refunds"
    for _ in range(
        2 if method == "GET" else 1
    ):  # the HTTP library repeats a GET once if a kept connection breaks
        provider.double.fail_next(method, path, loss)

    if method == "PUT":  # a refund that is done needs no note
        await gateway.refund_charge(request)
    else:
        with pytest.raises(UnknownOutcomeError):
            await gateway.refund_charge(request)
    provider.double.faults.clear()
    done = await gateway.refund_charge(request)
    assert [each.state for each in done.refunds] == [RefundState.DONE]
    assert len(payment["refunds"]) == 1
    assert await gateway.refund_charge(request) == done


async def test_one_of_two_payments_is_refunded(
    gateway: Any, account: Account, provider: MercadoPagoProvider
) -> None:
    """A repeated request tries the same payments in the same order, so it refunds none of them again.

    [D-265, D-53 lost answer]
    """
    charge = await gateway.create_charge(charge_request())
    first, second = account.attempt(charge.charge_id), account.attempt(charge.charge_id)
    await gateway.refund_charge(refund_request(charge, 6000))
    request = refund_request(charge, 5000)
    for _ in range(2):
        provider.double.fail_next("POST", f"/v1/payments/{second['id']}/refunds", Loss.ANSWER)
        with pytest.raises(UnknownOutcomeError):
            await gateway.refund_charge(request)
    await gateway.refund_charge(request)
    with pytest.raises(PermanentError):
        await gateway.refund_charge(refund_request(charge, 5000))

    assert [len(each["refunds"]) for each in (first, second)] == [1, 1]
    found = await gateway.get_charge(charge.charge_id)
    assert [each.amount_cents for each in found.entries if each.kind is EntryKind.REFUND] == [6000, 5000]


async def test_a_refund_needs_a_charge_with_a_payment(gateway: Any, account: Account) -> None:
    """[D-265, D-53]"""
    charge = await gateway.create_charge(charge_request())
    account.attempt(charge.charge_id, "pending")
    with pytest.raises(PermanentError) as refused:
        await gateway.refund_charge(refund_request(charge, 1))
    assert refused.value.code == "charge_status"
    for charge_id in ("", "../x", "1-2"):
        with pytest.raises(NotFoundError):
            await gateway.refund_charge(replace(refund_request(charge, 1), charge_id=charge_id))
