"""What the adapter makes of Stripe's answers: states, payments, refunds, disputes and lists (D-263)."""

from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Any

import pytest

from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.checked import CheckedGateway
from fatura.gateways.port import (
    Charge,
    ChargeState,
    Gateway,
    NotFoundError,
    PermanentError,
    Refund,
    RefundState,
    UnknownOutcomeError,
)
from tests.contract.provider import NOW, charge_request, charges_listed, refund_request
from tests.contract.stripe_provider import (
    READ,
    StripeProvider,
    config_of,
    opened_provider,
)
from tests.doubles.server import Loss
from tests.doubles.stripe.book import Account

AT = int(NOW.timestamp())


@pytest.fixture
async def provider() -> AsyncGenerator[StripeProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: StripeProvider) -> Gateway:
    return await provider.connect()


def checked(gateway: Gateway) -> CheckedGateway:
    return CheckedGateway(gateway, currency="BRL", now=NOW)


async def paid(
    gateway: Gateway, provider: StripeProvider, method: PaymentMethod = PaymentMethod.PIX
) -> Charge:
    charge = await gateway.create_charge(charge_request(method))
    await provider.pay(gateway, charge)
    return charge


def kinds(charge: Charge) -> list[tuple[EntryKind, int]]:
    return [(entry.kind, entry.amount_cents) for entry in charge.entries]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("open", ChargeState.OPEN),
        ("void", ChargeState.CANCELED),
        ("uncollectible", ChargeState.EXPIRED),
    ],
)
async def test_states_of_unpaid_invoices(
    gateway: Gateway, provider: StripeProvider, status: str, state: ChargeState
) -> None:
    """An open invoice can be paid also after its due date. [D-263, D-26]"""
    created = await gateway.create_charge(charge_request())
    invoice = provider.account(gateway).invoices[created.charge_id]
    invoice.update(status=status, due_date=AT - 86_400)
    assert (await checked(gateway).get_charge(created.charge_id)).state is state


async def test_an_uncollectible_invoice_can_be_paid_and_voided(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """[D-263, D-27]"""
    for act in ("pay", "void"):
        created = await gateway.create_charge(charge_request())
        account = provider.account(gateway)
        account.invoices[created.charge_id]["status"] = "uncollectible"
        if act == "pay":
            account.pay(created.charge_id)
            assert (await gateway.get_charge(created.charge_id)).state is ChargeState.PAID
        else:
            assert (await gateway.cancel_charge(created.charge_id)).state is ChargeState.CANCELED
            assert account.invoices[created.charge_id]["status"] == "void"


async def test_a_draft_is_no_charge(gateway: Gateway, provider: StripeProvider) -> None:
    """Otherwise the engine would wait for its payment. [D-33, D-263]"""
    request = charge_request()
    provider.double.fail_next("POST", f"{READ}/finalize", Loss.REQUEST)
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    [draft] = provider.account(gateway).invoices.values()
    assert draft["status"] == "draft"
    for call in (gateway.get_charge, gateway.cancel_charge):
        with pytest.raises(NotFoundError):
            await call(draft["id"])
    assert await gateway.find_charges(request.invoice_id, 1) == []
    assert await charges_listed(gateway, NOW) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "gone"},
        {"currency": "usd"},
        {"total": "9990"},
        {"created": 10**18},
        {"created": -(10**12)},
        {"due_date": 10**18},
        {"status": "paid", "amount_paid": 9990},
    ],
)
async def test_a_wrong_answer_is_recorded_nowhere(
    gateway: Gateway, provider: StripeProvider, wrong: dict[str, Any]
) -> None:
    """The last one is paid, but its payment is still open. It hides no other charge. [D-50, D-263]"""
    provider.double.contract = None
    made = [await gateway.create_charge(charge_request()) for _ in range(3)]
    provider.account(gateway).invoices[made[1].charge_id].update(wrong)

    with pytest.raises(InvalidFieldError):
        await checked(gateway).get_charge(made[1].charge_id)
    if "created" not in wrong:
        with pytest.raises(InvalidFieldError):
            await checked(gateway).find_charges(made[1].invoice_id, 1)
        listed = [each async for each in checked(gateway).listed_since(NOW) if not isinstance(each, datetime)]
        assert [each.charge_id for each in listed if isinstance(each, Charge)] == [
            made[0].charge_id,
            made[2].charge_id,
        ]
        assert len(listed) == 3


async def test_part_payments_are_entries(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-50, D-263]"""
    request = charge_request()
    created = await gateway.create_charge(request)
    account = provider.account(gateway)
    account.pay(created.charge_id, 4000)
    part = await checked(gateway).get_charge(created.charge_id)
    assert (part.state, kinds(part)) == (ChargeState.OPEN, [(EntryKind.PAYMENT, 4000)])
    assert await gateway.create_charge(request) == part

    account.pay(created.charge_id)
    whole = await checked(gateway).get_charge(created.charge_id)
    assert (whole.state, sorted(kinds(whole))) == (
        ChargeState.PAID,
        [(EntryKind.PAYMENT, 4000), (EntryKind.PAYMENT, 5990)],
    )
    assert set(part.entries) < set(whole.entries)
    assert await charges_listed(gateway, NOW) == [whole]


async def test_a_repeat_returns_the_payment(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-33, D-263]"""
    request = charge_request()
    created = await gateway.create_charge(request)
    await provider.pay(gateway, created)
    assert await gateway.create_charge(request) == await gateway.get_charge(created.charge_id)


async def test_money_that_arrived_outside_stripe_is_a_payment(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """It can be returned only outside Stripe. [D-50, D-263]"""
    created = await gateway.create_charge(charge_request())
    account = provider.account(gateway)
    account.pay(created.charge_id, 1000)
    account.pay_outside(created.charge_id)
    charge = await checked(gateway).get_charge(created.charge_id)
    assert (charge.state, kinds(charge)) == (
        ChargeState.PAID,
        [(EntryKind.PAYMENT, 1000), (EntryKind.PAYMENT, 8990)],
    )
    with pytest.raises(PermanentError) as refusal:
        await gateway.refund_charge(refund_request(created, 1001))
    assert refusal.value.code == "not_refundable"


async def test_a_credit_note_is_no_payment(gateway: Gateway, provider: StripeProvider) -> None:
    """A credit note of the whole amount cancels the charge. [D-50, D-263]"""
    part, whole = [await gateway.create_charge(charge_request()) for _ in range(2)]
    account = provider.account(gateway)
    account.credit(part.charge_id, 990)
    account.pay(part.charge_id)
    account.credit(whole.charge_id, 9990)
    for each in account.payments(whole.charge_id):
        each["status"] = "canceled"
    found = await checked(gateway).get_charge(part.charge_id)
    assert (found.state, kinds(found)) == (ChargeState.PAID, [(EntryKind.PAYMENT, 9000)])
    assert (await checked(gateway).get_charge(whole.charge_id)).state is ChargeState.CANCELED


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("pending", RefundState.PENDING),
        ("requires_action", RefundState.PENDING),
        (None, RefundState.PENDING),
        ("failed", RefundState.FAILED),
        ("canceled", RefundState.FAILED),
    ],
)
async def test_a_refund_that_moved_no_money_is_no_entry(
    gateway: Gateway, provider: StripeProvider, status: str | None, state: RefundState
) -> None:
    """[D-53, D-263]"""
    charge = await paid(gateway, provider)
    request = refund_request(charge, 4000)
    await gateway.refund_charge(request)
    [refund] = provider.account(gateway).of("refund").values()
    refund.update(status=status, failure_reason="declined" if status == "failed" else None)

    found = await checked(gateway).get_charge(charge.charge_id)
    assert [(each.refund_id, each.state) for each in found.refunds] == [(request.refund_id, state)]
    assert kinds(found) == [(EntryKind.PAYMENT, 9990)]
    if status == "failed":
        assert "declined" in (found.refunds[0].detail or "")
        whole = refund_request(charge, 9990)
        assert (await gateway.refund_charge(whole)).refunds[-1].state is RefundState.DONE


async def test_a_refund_is_made_once(gateway: Gateway, provider: StripeProvider) -> None:
    """A repeat within a day has the same key; the reason of the merchant is stored. [D-53, D-263]"""
    charge = await paid(gateway, provider)
    request = refund_request(charge, 4000)
    for loss in (Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK):
        provider.double.fail_next("POST", "/v1/refunds", loss)
    with pytest.raises(UnknownOutcomeError):
        await gateway.refund_charge(request)
    [refund] = provider.account(gateway).of("refund").values()
    assert refund["metadata"] == {"fatura_refund": str(request.refund_id), "reason": request.reason}
    provider.double.edit = lambda answer: answer.update(data=[]) if answer.get("object") == "list" else None
    for _ in range(2):
        with pytest.raises(UnknownOutcomeError):
            await gateway.refund_charge(request)
    answered = await gateway.refund_charge(request)
    assert len(provider.account(gateway).of("refund")) == 1
    assert answered.refunds == (Refund(request.refund_id, RefundState.DONE, refund["id"]),)
    assert provider.double.replays == 3


async def test_a_boleto_is_not_refunded(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-263]"""
    charge = await paid(gateway, provider, PaymentMethod.BOLETO)
    with pytest.raises(PermanentError) as refusal:
        await gateway.refund_charge(refund_request(charge, 100))
    assert refusal.value.code == "invalid_request_error"
    assert "boleto" in refusal.value.detail


@pytest.mark.parametrize("state", [ChargeState.OPEN, ChargeState.CANCELED, ChargeState.EXPIRED])
async def test_a_part_payment_of_an_unpaid_charge_is_refunded(
    gateway: Gateway, provider: StripeProvider, state: ChargeState
) -> None:
    """For example, the merchant has canceled the invoice after the payer paid a part. [D-53, D-263]"""
    created = await gateway.create_charge(charge_request())
    account = provider.account(gateway)
    account.pay(created.charge_id, 4000)
    if state is ChargeState.CANCELED:
        await gateway.cancel_charge(created.charge_id)
    if state is ChargeState.EXPIRED:
        account.invoices[created.charge_id]["status"] = "uncollectible"
    charge = await checked(gateway).refund_charge(refund_request(created, 4000))
    assert (charge.state, kinds(charge)) == (state, [(EntryKind.PAYMENT, 4000), (EntryKind.REFUND, 4000)])
    with pytest.raises(PermanentError):
        await gateway.refund_charge(refund_request(created, 1))


async def test_refunds_of_part_payments_go_to_one_of_them(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-53, D-263]"""
    charge = await gateway.create_charge(charge_request())
    account = provider.account(gateway)
    account.pay(charge.charge_id, 4000)
    account.pay(charge.charge_id)
    requests = [refund_request(charge, cents) for cents in (3000, 3000, 2000)]
    for request in requests:
        await checked(gateway).refund_charge(request)
    found = await checked(gateway).get_charge(charge.charge_id)
    assert {each.refund_id for each in found.refunds} == {each.refund_id for each in requests}
    by_payment: dict[str, int] = {}
    for each in account.of("refund").values():
        by_payment[each["payment_intent"]] = by_payment.get(each["payment_intent"], 0) + each["amount"]
    assert sorted(by_payment.values()) == [3000, 5000]
    with pytest.raises(PermanentError):
        await gateway.refund_charge(refund_request(charge, 1001))


async def test_refunds_and_disputes_of_the_dashboard_are_entries(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """Inquiries move no money. [D-50, D-263]"""
    charge = await paid(gateway, provider, PaymentMethod.CARD)
    account = provider.account(gateway)
    await provider.refund(gateway, charge)
    assert (await checked(gateway).get_charge(charge.charge_id)).refunds == ()
    disputed = await paid(gateway, provider, PaymentMethod.CARD)
    dispute = account.dispute(disputed.charge_id, "warning_needs_response")
    for status, expected in (
        ("warning_needs_response", []),
        ("warning_closed", []),
        ("prevented", []),
        ("new_status", []),
        ("needs_response", [EntryKind.DISPUTE_OPENED]),
        ("under_review", [EntryKind.DISPUTE_OPENED]),
        ("won", [EntryKind.DISPUTE_OPENED, EntryKind.DISPUTE_WON]),
        ("lost", [EntryKind.DISPUTE_OPENED, EntryKind.DISPUTE_LOST]),
    ):
        provider.double.contract = None if status == "new_status" else provider.double.contract
        dispute["status"] = status
        found = await checked(gateway).get_charge(disputed.charge_id)
        assert [entry.kind for entry in found.entries[1:]] == expected
        assert {entry.reference for entry in found.entries[1:]} <= {dispute["id"]}
        assert found.state is ChargeState.PAID


async def test_a_payment_that_is_processed_keeps_the_charge(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """Stripe refuses to void it. A charge that was paid or voided meanwhile is returned. [D-27 not confirmed, D-263]"""
    for act, state in ((None, None), ("pay", ChargeState.PAID), ("void", ChargeState.CANCELED)):
        created = await gateway.create_charge(charge_request())
        account = provider.account(gateway)
        _refuse_void(provider, account, created, act)
        if state is None:
            with pytest.raises(PermanentError):
                await gateway.cancel_charge(created.charge_id)
        else:
            assert (await gateway.cancel_charge(created.charge_id)).state is state


def _refuse_void(provider: StripeProvider, account: Account, charge: Charge, act: str | None) -> None:
    """Let a payment, or another person, be faster than the request to void the invoice."""
    if act is None:
        account.processing.add(charge.charge_id)
        return

    def edit(answer: Any) -> None:
        if answer.get("id") == charge.charge_id:
            provider.double.edit = lambda _: None
            getattr(account, act)(charge.charge_id)

    provider.double.edit = edit


async def test_many_invoices_are_listed_in_order(gateway: Gateway, provider: StripeProvider) -> None:
    """Also invoices of one second, and those that are created between two pages. [D-161, D-263]"""
    made = list[str]()
    for minute in (-3000, -2000, -100, -2, 0):
        provider.double.now = NOW + timedelta(minutes=minute)
        then = provider.gateway(config_of(gateway).credentials["apiKey"])
        made += [(await then.create_charge(charge_request())).charge_id for _ in range(30)]
    provider.double.requests.clear()
    listed = list[str]()
    async for each in checked(gateway).charges_since(NOW - timedelta(days=30)):
        if not listed:
            await gateway.create_charge(charge_request())
        listed.append(each.charge_id)
    assert listed[: len(made)] == made
    assert len(listed) - len(made) in {0, 1}
    lists = [path for method, path in provider.double.requests if (method, path) == ("GET", "/v1/invoices")]
    assert len(lists) < 60, "the search for the oldest invoice takes some calls, and each page one more"
    later = [each.charge_id for each in await charges_listed(gateway, NOW - timedelta(minutes=2))]
    assert later[:60] == made[90:]


async def test_lists_skip_what_is_not_a_charge(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-123, D-263]"""
    charge = await gateway.create_charge(charge_request())
    account = provider.account(gateway)
    invoice = account.invoices[charge.charge_id]
    account.invoices["in_x"] = {**invoice, "id": "in_x", "metadata": {"order": "7"}}
    account.invoices["in_y"] = {**invoice, "id": "in_y", "status": "draft"}
    assert await charges_listed(gateway, NOW) == [charge]
