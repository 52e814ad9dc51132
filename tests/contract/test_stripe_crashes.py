"""A charge takes several requests to Stripe. A failure of any of them leaves one open invoice at last (D-33, D-263)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from fatura.gateways.port import (
    Charge,
    ChargeState,
    Gateway,
    GatewayError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
)
from tests.contract.provider import DUE_DATE, NOW
from tests.contract.stripe_provider import (
    READ,
    StripeProvider,
    after,
    assert_one_open,
    config_of,
    opened_provider,
    request_of_lines,
)
from tests.doubles.server import Fault, Loss
from tests.doubles.stripe.book import Account, RefusedError

CUSTOMER = "/v1/customers"
STEPS = [
    ("GET", CUSTOMER, 0),
    ("POST", CUSTOMER, 0),
    ("GET", "/v1/invoices", 0),
    ("GET", "/v1/invoices/search", 0),
    ("POST", "/v1/invoices", 0),
    ("POST", "/v1/invoiceitems", 0),
    ("POST", "/v1/invoiceitems", 1),
    ("POST", "/v1/invoiceitems", 2),
    ("GET", "/v1/invoices", 1),
    ("POST", f"{READ}/finalize", 0),
]
"""The requests of one charge: the method, the path, and how many such requests come before."""
LATER = [timedelta(), timedelta(hours=1), timedelta(hours=25), timedelta(days=4)]


@pytest.fixture
async def provider() -> AsyncGenerator[StripeProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: StripeProvider) -> Gateway:
    return await provider.connect()


async def test_the_steps_are_all_requests_of_a_charge(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-263]"""
    charge = await gateway.create_charge(request_of_lines())
    assert [path.replace(charge.charge_id, "in_0") for _, path in provider.double.requests] == [
        path.replace(READ, "/v1/invoices/in_0") for _, path, _ in STEPS
    ]


@pytest.mark.parametrize("passed", LATER)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("loss", [each for each in Loss if each is not Loss.SLOW])
async def test_a_failure_of_any_step_leaves_one_open_invoice(
    gateway: Gateway, provider: StripeProvider, step: tuple[str, str, int], loss: Loss, passed: timedelta
) -> None:
    """No failure before the last step makes a charge, and a repeat always makes one. [D-33, D-263]"""
    request = request_of_lines()
    method, path, skip = step
    provider.double.faults = [Fault(method, path, loss, skip)]

    with suppress(TransientError, UnknownOutcomeError):  # a broken GET is repeated by the HTTP library
        await gateway.create_charge(request)
    provider.double.faults.clear()
    later = after(gateway, provider, passed)
    is_made = any(each["status"] == "open" for each in provider.account(later).invoices.values())
    assert len(await later.find_charges(request.invoice_id, 1)) == is_made

    charge = await later.create_charge(request)
    assert_one_open(provider, later, request, charge)
    assert await later.create_charge(request) == charge
    assert await later.find_charges(request.invoice_id, 1) == [charge]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("passed", [timedelta(), timedelta(hours=25)])
async def test_a_process_that_dies_at_any_step_leaves_one_open_invoice(
    gateway: Gateway, provider: StripeProvider, step: tuple[str, str, int], passed: timedelta
) -> None:
    """[D-33, D-263]"""
    request = request_of_lines()
    method, path, skip = step
    provider.double.faults = [Fault(method, path, Loss.SLOW, skip)]
    dying = asyncio.create_task(gateway.create_charge(request))
    await asyncio.wait([dying], timeout=0.3)
    assert provider.double.faults == [], "the step was reached"
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)

    later = after(gateway, provider, passed)
    assert_one_open(provider, later, request, await later.create_charge(request))


async def test_repeats_of_many_failures_make_one_invoice(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-33, D-263]"""
    request = request_of_lines()
    for method, path, skip in STEPS:
        for loss in (Loss.ANSWER, Loss.JUNK, Loss.ERROR_AFTER):
            provider.double.faults = [Fault(method, path, loss, skip)]
            with suppress(GatewayError):
                await gateway.create_charge(request)
    provider.double.faults.clear()
    assert_one_open(provider, gateway, request, await gateway.create_charge(request))


async def test_concurrent_calls_make_one_invoice(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-33, D-263]"""
    request = request_of_lines()
    made = await asyncio.gather(*(gateway.create_charge(request) for _ in range(6)), return_exceptions=True)
    assert all(isinstance(each, Charge | UnknownOutcomeError) for each in made)
    charge = await gateway.create_charge(request)
    assert {each.charge_id for each in made if isinstance(each, Charge)} <= {charge.charge_id}
    assert_one_open(provider, gateway, request, charge)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
async def test_only_the_oldest_draft_is_finalized(
    gateway: Gateway, provider: StripeProvider, loss: Loss
) -> None:
    """Another process makes, or finalizes, its draft between the search and the draft of this call. [D-33, D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("POST", f"{READ}/finalize", loss)]
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    [older] = provider.account(gateway).invoices
    late = after(gateway, provider, timedelta(hours=1))

    def hide(answer: Any) -> None:
        if answer["object"] == "list" and [each["id"] for each in answer["data"]] == [older]:
            provider.double.edit = lambda _: None
            answer["data"] = []

    provider.double.edit = hide
    with suppress(UnknownOutcomeError):
        assert (await late.create_charge(request)).charge_id == older
    assert list(provider.account(gateway).invoices) == [older]
    charge = await late.create_charge(request)
    assert_one_open(provider, gateway, request, charge)


async def test_a_repeat_makes_no_further_draft(gateway: Gateway, provider: StripeProvider) -> None:
    """[D-263]"""
    request = request_of_lines()
    await gateway.create_charge(request)
    provider.double.requests.clear()
    await after(gateway, provider, timedelta(hours=30)).create_charge(request)
    assert {method for method, _ in provider.double.requests} == {"GET"}


async def test_calls_of_two_hours_at_once_make_one_invoice(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """Their drafts have different idempotency keys, so only the oldest draft is finalized. [D-33, D-263]"""
    request = request_of_lines()
    early = after(gateway, provider, timedelta(minutes=59, seconds=59))
    late = after(gateway, provider, timedelta(hours=1, seconds=1))
    made = await asyncio.gather(
        *(each.create_charge(request) for each in (early, late)), return_exceptions=True
    )
    assert all(isinstance(each, Charge | UnknownOutcomeError) for each in made)
    charge = await late.create_charge(request)
    assert_one_open(provider, gateway, request, charge)


@pytest.mark.parametrize("path", ["/v1/customers", "/v1/invoices", "/v1/invoiceitems"])
async def test_a_saved_server_error_does_not_block_a_charge_for_good(
    gateway: Gateway, provider: StripeProvider, path: str
) -> None:
    """Stripe answers a repeated key with the saved 500 for a day. [D-263]"""
    request = request_of_lines()
    provider.double.crashes = [path]
    for _ in range(2):
        with pytest.raises((TransientError, UnknownOutcomeError)):
            await gateway.create_charge(request)
    later = after(gateway, provider, timedelta(hours=25))
    assert_one_open(provider, later, request, await later.create_charge(request))


async def test_a_draft_that_was_deleted_by_hand_is_made_again(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """In the same hour, Stripe answers with the deleted draft. [D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("POST", "/v1/invoiceitems", Loss.ANSWER, 1)]
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    provider.account(gateway).invoices.clear()
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    later = after(gateway, provider, timedelta(hours=1))
    assert_one_open(provider, later, request, await later.create_charge(request))


async def test_a_draft_of_another_due_date_is_deleted(gateway: Gateway, provider: StripeProvider) -> None:
    """The engine sends a later due date if the first request was not sent in time. [D-5, D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("POST", f"{READ}/finalize", Loss.REQUEST)]
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    moved = replace(request, due_date=DUE_DATE + timedelta(days=1))
    assert_one_open(provider, gateway, moved, await gateway.create_charge(moved))


@pytest.mark.parametrize(
    ("status", "state"),
    [("open", ChargeState.OPEN), ("void", ChargeState.CANCELED), ("paid", ChargeState.PAID)],
)
@pytest.mark.parametrize("passed", [timedelta(), timedelta(hours=25)])
async def test_an_invoice_that_a_person_moved_is_returned(
    gateway: Gateway, provider: StripeProvider, status: str, state: ChargeState, passed: timedelta
) -> None:
    """Nothing is charged again, also if Stripe has forgotten the keys. [D-33, D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("POST", f"{READ}/finalize", Loss.REQUEST)]
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    account = provider.account(gateway)
    [invoice_id] = account.invoices
    account.finalize(invoice_id)
    if status == "void":
        account.void(invoice_id)
    if status == "paid":
        account.pay(invoice_id)

    later = after(gateway, provider, passed)
    charge = await later.create_charge(request)
    assert (charge.charge_id, charge.state) == (invoice_id, state)
    assert await later.find_charges(request.invoice_id, 1) == [charge]
    assert list(account.invoices) == [invoice_id]


async def test_a_refused_line_leaves_no_draft(
    gateway: Gateway, provider: StripeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-34, D-263]"""
    refused = RefusedError("amount_too_large", "Amount must be no more than R$999,999.99", param="amount")
    monkeypatch.setattr(Account, "add_line", Mock(side_effect=refused))
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(request_of_lines())
    assert refusal.value.code == "amount_too_large"
    assert provider.account(gateway).invoices == {}


@pytest.mark.parametrize("minutes", [0, 30, 24 * 60 + 1])
async def test_a_deleted_customer_is_replaced(
    gateway: Gateway, provider: StripeProvider, minutes: int
) -> None:
    """For a day, Stripe answers a repeated key with the deleted customer, so the charge waits. [D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("GET", "/v1/invoices", Loss.ERROR_BEFORE)]
    with pytest.raises(TransientError):
        await gateway.create_charge(request)
    account = provider.account(gateway)
    for each in account.of("customer").values():
        each["deleted"] = True
    later = after(gateway, provider, timedelta(minutes=minutes))
    if minutes < 24 * 60:
        with pytest.raises(TransientError):
            await later.create_charge(request)
        assert account.invoices == {}
        return
    assert (await later.create_charge(request)).state is ChargeState.OPEN
    assert len(account.of("customer")) == 2


async def test_a_due_date_that_just_passed_is_a_transient_failure(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """The engine built the request before midnight, and Stripe got it on the next day. [D-34, D-263]"""
    request = replace(request_of_lines(), due_date=NOW.date())
    before: Any = after(gateway, provider, timedelta(hours=15, minutes=1))
    before._config = replace(config_of(before), now=NOW + timedelta(hours=14, minutes=59))
    with pytest.raises(TransientError):
        await before.create_charge(request)
    with pytest.raises(PermanentError):
        await after(gateway, provider, timedelta(hours=15, minutes=1)).create_charge(request)
    assert provider.account(gateway).invoices == {}


@pytest.mark.faults
async def test_charges_of_a_busy_account_are_found(gateway: Gateway, provider: StripeProvider) -> None:
    """A search reads all invoices of the account since the engine's invoice was generated. [D-33, D-263]"""
    request = request_of_lines()
    provider.double.faults = [Fault("POST", f"{READ}/finalize", Loss.ANSWER)]
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    account = provider.account(gateway)
    [(invoice_id, invoice)] = account.invoices.items()
    provider.double.contract = None
    for hour in range(40):
        provider.double.now = NOW + timedelta(hours=hour)
        for number in range(100):
            name = f"in_{hour}_{number}"
            other = {**invoice, "id": name, "metadata": {}, "created": int(provider.double.now.timestamp())}
            account.invoices[name] = other
    later = after(gateway, provider, timedelta(hours=40))
    provider.double.requests.clear()
    [found] = await later.find_charges(request.invoice_id, 1)
    assert found.charge_id == invoice_id
    assert len(provider.double.requests) < 4_000 / 25 + 20
