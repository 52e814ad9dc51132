"""How the adapter of Asaas reads answers: lists, dates, payments, refunds, and what it does not know (D-261)."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fatura.domain.calendar import start_of_day
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.checked import CheckedGateway
from fatura.gateways.port import (
    Charge,
    ChargeState,
    Gateway,
    PermanentError,
    Refund,
    RefundState,
    UnknownOutcomeError,
)
from fatura.gateways.reais import cents
from tests.contract.asaas_provider import TODAY, AsaasProvider, opened_provider
from tests.contract.provider import NOW, charge_request, charges_listed, refund_request
from tests.doubles.server import Fault, Loss


@pytest.fixture
async def provider() -> AsyncGenerator[AsaasProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: AsaasProvider) -> Gateway:
    return await provider.connect()


async def test_unknown_fields_are_ignored(gateway: Gateway, provider: AsaasProvider) -> None:
    """[D-261, D-34]"""
    provider.double.edit = _add_fields
    created = await gateway.create_charge(charge_request())

    assert (await gateway.get_charge(created.charge_id)).state is ChargeState.OPEN
    assert len(await charges_listed(gateway, NOW)) == 1


def _add_fields(answer: Any) -> None:
    answer["novidade"] = {"valor": 1.5}
    for each in answer.get("data", []):
        each["outra"] = [None]


@pytest.mark.parametrize(
    "wrong",
    [{"status": "LIQUIDATED"}, {"value": "muito"}, {"value": 10.005}, {"value": 1e300}, {"dueDate": 1}],
)
async def test_an_unreadable_charge_does_not_hide_the_others(
    gateway: Gateway, provider: AsaasProvider, wrong: dict[str, object]
) -> None:
    """The engine records nothing from an answer with an unknown status. [D-50, D-261]"""
    provider.double.contract = None
    checked = CheckedGateway(gateway, currency="BRL", now=NOW)
    made = [await gateway.create_charge(charge_request()) for _ in range(3)]
    provider.account(gateway).payments[made[1].charge_id].update(wrong)

    with pytest.raises(InvalidFieldError):
        await checked.get_charge(made[1].charge_id)
    with pytest.raises(InvalidFieldError):
        await checked.find_charges(made[1].invoice_id, 1)
    listed = [each async for each in checked.listed_since(NOW) if not isinstance(each, datetime)]
    assert [each.charge_id for each in listed if isinstance(each, Charge)] == [
        made[2].charge_id,
        made[0].charge_id,
    ]
    assert len(listed) == 3


@pytest.mark.parametrize("text", ["0.001", "1E+999999999", "-1E+999999999", "NaN", "Infinity"])
def test_an_amount_that_is_not_in_cents_is_refused(text: str) -> None:
    """A huge exponent must not become an integer, which would fill the memory. [D-261, D-50]"""
    with pytest.raises(InvalidFieldError):
        cents(Decimal(text))
    assert cents(Decimal("1E+1")) == 1000


async def test_a_long_day_is_listed_in_pages(gateway: Gateway, provider: AsaasProvider) -> None:
    """A charge that is created or deleted between two pages does not hide another one. [D-161, D-261]"""
    account = provider.account(gateway)
    made = [(await gateway.create_charge(charge_request())).charge_id for _ in range(250)]
    provider.double.requests.clear()
    listed = list[str]()
    async for each in CheckedGateway(gateway, currency="BRL", now=NOW).charges_since(NOW):
        listed.append(each.charge_id)
        if len(listed) == 100:
            assert len(provider.double.requests) == 1, "a page is read only when it is needed"
            for charge_id in made[-3:]:
                account.delete(charge_id)
            await gateway.create_charge(charge_request())

    assert set(made) <= set(listed), "all were listed, also those that moved to another page"
    assert len(set(listed)) == len(listed)


async def test_days_are_listed_in_order(provider: AsaasProvider) -> None:
    """Asaas has only the date of a charge's creation. [D-161, D-261]"""
    gateway = await provider.connect()
    made = list[Charge]()
    for day in (8, 9, 10):
        provider.account(gateway).today = date(2026, 3, day)
        made.append(await gateway.create_charge(charge_request()))

    listed = [
        each
        async for each in gateway.charges_since(datetime(2026, 3, 9, 20, tzinfo=UTC))
        if isinstance(each, Charge)
    ]
    assert [each.charge_id for each in listed] == [each.charge_id for each in made[1:]]
    assert [each.created_at for each in listed] == [start_of_day(date(2026, 3, day)) for day in (9, 10)]


async def test_few_charges_of_many_days_need_few_calls(provider: AsaasProvider) -> None:
    """A sweep reads a hundred charges within the time of one call. [D-161, D-261]"""
    gateway = await provider.connect()
    made = list[str]()
    for age in range(130, -1, -1):
        provider.account(gateway).today = TODAY - timedelta(days=age)
        made += [(await _created(gateway, age)).charge_id for _ in range(1 if age else 150)]
    provider.double.requests.clear()

    listed = await charges_listed(gateway, NOW - timedelta(days=130))
    assert [each.charge_id for each in listed[:130]] == made[:130]
    assert {each.charge_id for each in listed[130:]} == set(made[130:])
    assert len(listed) == 280
    assert len(provider.double.requests) < 20


async def _created(gateway: Gateway, age: int) -> Charge:
    return await gateway.create_charge(replace(charge_request(), due_date=TODAY + timedelta(days=age)))


async def test_a_payment_date_becomes_an_instant(gateway: Gateway, provider: AsaasProvider) -> None:
    """A payment of today was made about now; for an earlier payment, the day begins. [D-261]"""
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    assert (await gateway.get_charge(created.charge_id)).entries[0].occurred_at == NOW

    provider.account(gateway).payments[created.charge_id]["clientPaymentDate"] = "2026-03-08"
    paid_on = (await gateway.get_charge(created.charge_id)).entries[0].occurred_at
    assert paid_on == start_of_day(date(2026, 3, 8))


async def test_refunds_and_disputes_of_the_dashboard_are_entries(
    gateway: Gateway, provider: AsaasProvider
) -> None:
    """A refund of the dashboard has no id, so its date is its reference. A dispute always has the same reference.

    [D-50, D-261]
    """
    created = await gateway.create_charge(charge_request(PaymentMethod.CARD))
    account = provider.account(gateway)
    account.pay(created.charge_id)
    account.refund(created.charge_id, {"value": 10})
    account.refund(created.charge_id, {"value": 10})
    payment = account.payments[created.charge_id]
    payment["refunds"][1]["dateCreated"] = payment["refunds"][0]["dateCreated"]
    dispute = {"id": "cbk_1", "status": "IN_DISPUTE", "value": 79.9, "disputeStartDate": "2026-03-10"}
    payment.update(status="CHARGEBACK_DISPUTE", chargeback=dispute)

    charge = await CheckedGateway(gateway, currency="BRL", now=NOW).get_charge(created.charge_id)
    assert (charge.state, charge.refunds) == (ChargeState.PAID, ())
    assert [(entry.kind, entry.amount_cents) for entry in charge.entries] == [
        (EntryKind.PAYMENT, 9990),
        (EntryKind.REFUND, 1000),
        (EntryKind.REFUND, 1000),
        (EntryKind.DISPUTE_OPENED, 7990),
    ]
    payment["chargeback"] = None
    without = await CheckedGateway(gateway, currency="BRL", now=NOW).get_charge(created.charge_id)
    assert [(each.kind, each.reference) for each in without.entries] == [
        (each.kind, each.reference) for each in charge.entries
    ]
    payment["chargeback"] = dispute
    dispute["status"] = "REVERSED"
    later = await CheckedGateway(gateway, currency="BRL", now=NOW).get_charge(created.charge_id)
    assert later.entries[:-1] == charge.entries
    assert later.entries[-1].kind is EntryKind.DISPUTE_WON


@pytest.mark.parametrize(
    ("status", "state"),
    [("PENDING", RefundState.PENDING), ("CANCELLED", RefundState.FAILED), ("NEW", RefundState.PENDING)],
)
async def test_a_refund_that_moved_no_money_is_no_entry(
    gateway: Gateway, provider: AsaasProvider, status: str, state: RefundState
) -> None:
    """[D-53, D-261]"""
    provider.double.contract = None
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    request = refund_request(created, 4000)
    await gateway.refund_charge(request)
    provider.account(gateway).payments[created.charge_id]["refunds"][0]["status"] = status

    charge = await gateway.get_charge(created.charge_id)
    assert [(each.refund_id, each.state) for each in charge.refunds] == [(request.refund_id, state)]
    assert [entry.kind for entry in charge.entries] == [EntryKind.PAYMENT]


@pytest.mark.parametrize("amount_cents", [9990, 4000])
async def test_refunds_that_a_payment_does_not_list_are_read(
    gateway: Gateway, provider: AsaasProvider, amount_cents: int
) -> None:
    """[D-53, D-261]"""
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    request = replace(refund_request(created, amount_cents), reason="x" * 900)
    provider.double.edit = lambda answer: answer.update(refunds=None) if "value" in answer else None
    refunded = await gateway.refund_charge(request)

    assert await gateway.get_charge(created.charge_id) == refunded
    assert refunded.refunds == (Refund(request.refund_id, RefundState.DONE, str(request.refund_id)),)


@pytest.mark.parametrize("loss", [Loss.RATE, Loss.ERROR_BEFORE, Loss.JUNK])
async def test_a_refund_that_cannot_be_read_is_unknown(
    gateway: Gateway, provider: AsaasProvider, loss: Loss
) -> None:
    """[D-53 lost answer, D-261]"""
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    provider.double.edit = lambda answer: answer.update(refunds=None) if "value" in answer else None
    provider.double.faults.append(Fault("GET", r"/payments/\w+/refunds", loss, skip=1))
    request = refund_request(created, 4000)

    with pytest.raises(UnknownOutcomeError):
        await gateway.refund_charge(request)
    found = await gateway.get_charge(created.charge_id)
    assert [each.refund_id for each in found.refunds] == [request.refund_id]


async def test_a_boleto_is_not_refunded(gateway: Gateway, provider: AsaasProvider) -> None:
    """[D-261]"""
    created = await gateway.create_charge(charge_request(PaymentMethod.BOLETO))
    await provider.pay(gateway, created)
    with pytest.raises(PermanentError) as refusal:
        await gateway.refund_charge(refund_request(created, 100))
    assert refusal.value.code == "invalid_action"


@pytest.mark.parametrize("amount_cents", [9990, 4000])
async def test_an_accepted_refund_that_is_not_listed_yet_is_pending(
    gateway: Gateway, provider: AsaasProvider, amount_cents: int
) -> None:
    """Otherwise the engine would report that it failed, and a person would refund again. [D-53, D-261]"""
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    checked, request = CheckedGateway(gateway, currency="BRL", now=NOW), refund_request(created, amount_cents)
    provider.double.edit = _hide_refunds

    accepted = await checked.refund_charge(request)
    assert accepted.refunds == (Refund(request.refund_id, RefundState.PENDING),)
    assert [entry.kind for entry in accepted.entries] == [EntryKind.PAYMENT]
    provider.double.edit = lambda answer: answer.update(refunds=[]) if "value" in answer else None
    (shown,) = (await checked.get_charge(created.charge_id)).refunds
    assert shown == Refund(request.refund_id, RefundState.DONE, str(request.refund_id))


def _hide_refunds(answer: Any) -> None:
    if "value" in answer:
        answer["refunds"] = []
    elif answer.get("data") and "transactionReceiptUrl" in answer["data"][0]:
        answer["data"] = []


async def test_the_id_of_a_refund_survives_a_shortened_description(
    gateway: Gateway, provider: AsaasProvider
) -> None:
    """The message of a Pix has at most 140 characters. [D-53, D-261]"""
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    request = replace(refund_request(created, 4000), reason=f"[{created.invoice_id}] {'x' * 900}")
    await gateway.refund_charge(request)

    (kept,) = provider.account(gateway).payments[created.charge_id]["refunds"]
    assert len(kept["description"]) == 140
    kept["description"] = f"Estorno: {kept['description']}"[:60]
    (shown,) = (await gateway.get_charge(created.charge_id)).refunds
    assert shown.refund_id == request.refund_id


async def test_a_refunded_payment_without_its_refunds_is_unreadable(
    gateway: Gateway, provider: AsaasProvider
) -> None:
    """It must not look like a payment that the merchant keeps. [D-50, D-261]"""
    checked = CheckedGateway(gateway, currency="BRL", now=NOW)
    created = await gateway.create_charge(charge_request(PaymentMethod.CARD))
    account = provider.account(gateway)
    account.pay(created.charge_id)
    account.payments[created.charge_id].update(status="REFUNDED", refunds=[])

    with pytest.raises(InvalidFieldError):
        await checked.get_charge(created.charge_id)
    assert [type(each) async for each in checked.listed_since(NOW) if not isinstance(each, datetime)] == [
        InvalidFieldError
    ]
    account.payments[created.charge_id].update(status="CONFIRMED")
    account.refund(created.charge_id, {})
    provider.double.edit = lambda answer: answer.update(refunds=[]) if "value" in answer else None
    assert len((await checked.get_charge(created.charge_id)).entries) == 2


async def test_refunds_of_the_dashboard_keep_their_references(
    gateway: Gateway, provider: AsaasProvider
) -> None:
    """Otherwise a later refund of the same day would be recorded in place of an earlier one. [D-50, D-261]"""
    created = await gateway.create_charge(charge_request(PaymentMethod.CARD))
    account = provider.account(gateway)
    account.pay(created.charge_id)
    listed = account.payments[created.charge_id]
    listed["refunds"] = [_made(10)]
    (_, first) = (await gateway.get_charge(created.charge_id)).entries
    listed["refunds"] = [_made(20), _made(10, "PENDING"), _made(10)]
    later = (await gateway.get_charge(created.charge_id)).entries[1:]

    assert [each.amount_cents for each in later] == [2000, 1000]
    assert later[1] == first
    assert later[0].reference != first.reference


def _made(value: int, status: str = "DONE") -> dict[str, Any]:
    return {"dateCreated": "2026-03-10", "status": status, "value": value, "description": None}


async def test_a_fee_is_rounded(gateway: Gateway, provider: AsaasProvider) -> None:
    """[D-50, D-261]"""
    provider.double.contract = None
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    provider.account(gateway).payments[created.charge_id]["netValue"] = Decimal("97.915")
    (entry,) = (await gateway.get_charge(created.charge_id)).entries
    assert (entry.amount_cents, entry.fee_cents) == (9990, 198)


async def test_a_missing_installment_makes_a_new_charge_unknown(
    gateway: Gateway, provider: AsaasProvider
) -> None:
    """[D-33, D-261]"""
    request = replace(charge_request(PaymentMethod.CARD), installments=3)
    provider.double.edit = lambda answer: answer["data"].pop() if len(answer.get("data", ())) == 3 else None
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    provider.double.edit = lambda _: None
    (found,) = await gateway.find_charges(request.invoice_id, 1)
    assert found.amount_cents == request.amount_cents


@pytest.mark.parametrize("group", ["b8dd74c-d078-40a0-9ae1-61a66c61a204", "INS_000012", "x" * 80])
async def test_ids_of_installments_have_any_form(
    gateway: Gateway, provider: AsaasProvider, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    """Asaas' documents show ids that are no UUIDs. [D-261]"""
    provider.double.contract = None
    monkeypatch.setattr(provider.account(gateway), "new_group", lambda: group)
    created = await gateway.create_charge(replace(charge_request(PaymentMethod.CARD), installments=3))

    assert created.charge_id == group
    assert await gateway.get_charge(group) == created
    assert (await gateway.cancel_charge(group)).state is ChargeState.CANCELED


@pytest.mark.parametrize("wrong", ["ins/1", "x" * 81, "pay_1"])
async def test_an_id_that_cannot_be_read_later_is_no_charge(
    gateway: Gateway, provider: AsaasProvider, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """The engine could not poll or cancel it. [D-33, D-261]"""
    provider.double.contract = None
    monkeypatch.setattr(provider.account(gateway), "new_group", lambda: wrong)
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(replace(charge_request(PaymentMethod.CARD), installments=3))
