"""What people and the settings of an account change at Stripe while a charge is made (D-170, D-263)."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.port import ChargeState, Gateway, PermanentError, UnknownOutcomeError
from fatura.ids import new_id
from tests.contract.provider import DUE_DATE, NOW, charge_request
from tests.contract.stripe_provider import (
    READ,
    StripeProvider,
    after,
    assert_one_open,
    opened_provider,
    request_of_lines,
)
from tests.doubles.server import Fault, Loss


@pytest.fixture
async def provider() -> AsyncGenerator[StripeProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: StripeProvider) -> Gateway:
    return await provider.connect()


@pytest.mark.parametrize("change", ["email", "deleted", "copied"])
@pytest.mark.parametrize("status", ["draft", "open", "paid"])
async def test_a_customer_that_a_person_changed_gets_no_second_charge(
    gateway: Gateway, provider: StripeProvider, change: str, status: str
) -> None:
    """The customer is older than Stripe's keys, so the repeat finds or makes another customer. [D-33, D-263]"""
    earlier = request_of_lines()
    await gateway.create_charge(earlier)
    account = provider.account(gateway)
    account.invoices.clear()
    due = DUE_DATE + timedelta(days=30)
    request = replace(earlier, invoice_id=new_id(NOW + timedelta(days=30)), due_date=due)
    first = after(gateway, provider, timedelta(days=30))
    loss = Loss.REQUEST if status == "draft" else Loss.ANSWER
    provider.double.faults = [Fault("POST", f"{READ}/finalize", loss)]
    with pytest.raises(UnknownOutcomeError):
        await first.create_charge(request)
    [made] = account.invoices
    if status == "paid":
        account.pay(made)
    [customer] = account.of("customer").values()
    if change == "copied":
        copy = account.new("customer", "cus", balance=0, name=customer["name"], email=customer["email"])
        copy["metadata"] = customer["metadata"]
    customer |= {"deleted": True} if change in {"deleted", "copied"} else {"email": "new@example.com"}

    charge = await after(gateway, provider, timedelta(days=30, hours=2)).create_charge(request)
    assert [each["id"] for each in account.invoices.values()] == [charge.charge_id]
    assert (charge.charge_id == made) is (status != "draft")
    assert charge.state is (ChargeState.PAID if status == "paid" else ChargeState.OPEN)


async def test_a_half_made_draft_that_a_person_finalized_shows_its_amount(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """The engine compares the amount, and stops the invoice (D-170). [D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("POST", "/v1/invoiceitems", Loss.ANSWER, 1)]
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    account = provider.account(gateway)
    account.finalize(next(iter(account.invoices)))
    charge = await gateway.create_charge(request)
    assert (charge.amount_cents, charge.state) == (8990, ChargeState.OPEN)


async def test_a_line_that_a_person_added_makes_a_new_draft(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """[D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("POST", f"{READ}/finalize", Loss.REQUEST)]
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    account = provider.account(gateway)
    [draft] = account.invoices.values()
    account.add_line(
        {"invoice": draft["id"], "customer": draft["customer"], "amount": "1", "currency": "brl"}
    )
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    assert account.invoices == {}
    later = after(gateway, provider, timedelta(hours=1))
    assert_one_open(provider, later, request, await later.create_charge(request))


@pytest.mark.parametrize("cause", ["tax", "balance", "debt"])
async def test_an_amount_that_stripe_would_change_is_refused(
    gateway: Gateway, provider: StripeProvider, cause: str
) -> None:
    """The draft with the wrong amount is deleted before a payer could pay it. [D-8, D-263]"""
    first = request_of_lines()
    await gateway.create_charge(first)
    account = provider.account(gateway)
    kept = dict(account.invoices)
    [customer] = account.of("customer").values()
    account.tax_cents = 150 if cause == "tax" else 0
    customer["balance"] = {"tax": 0, "balance": -500, "debt": 500}[cause]

    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request_of_lines(), payer=first.payer))
    assert refusal.value.code == "amount_differs"
    assert account.invoices == kept


@pytest.mark.parametrize(("balance", "cents"), [(-500, 9490), (500, 10490), (-20_000, 0)])
async def test_a_balance_that_changes_at_the_last_moment_shows_in_the_amount(
    gateway: Gateway, provider: StripeProvider, balance: int, cents: int
) -> None:
    """The engine compares the amount, and stops the invoice (D-170). [D-8, D-263]"""

    def change(answer: Any) -> None:
        if answer["object"] == "list" and answer["data"] and answer["data"][0]["object"] == "invoice":
            [customer] = provider.account(gateway).of("customer").values()
            customer["balance"] = balance
            provider.double.edit = lambda _: None

    provider.double.edit = change
    charge = await gateway.create_charge(request_of_lines())
    assert (charge.amount_cents, charge.entries) == (cents, ())
    assert charge.state is (ChargeState.OPEN if cents else ChargeState.CANCELED)
    [invoice] = provider.account(gateway).invoices.values()
    assert invoice["amount_due"] == cents


@pytest.mark.parametrize("lagging", [{"status": "open"}, {"status": "processing"}, {"amount_paid": None}])
async def test_a_payment_that_lags_behind_its_invoice_is_recorded_once(
    gateway: Gateway, provider: StripeProvider, lagging: dict[str, Any]
) -> None:
    """Its amount is not taken for money that arrived outside Stripe. [D-50, D-263]"""
    provider.double.contract = None
    created = await gateway.create_charge(charge_request())
    account = provider.account(gateway)
    account.pay(created.charge_id)
    [payment] = account.payments(created.charge_id)
    settled = dict(payment)
    payment |= lagging
    with pytest.raises(InvalidFieldError):
        await gateway.get_charge(created.charge_id)
    payment |= settled
    charge = await gateway.get_charge(created.charge_id)
    assert [entry.reference for entry in charge.entries] == [payment["id"]]
