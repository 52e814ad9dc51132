"""Building the invoice of a cycle: status, total, installments and items."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.invoice import BilledProduct, BillingTerms, ItemDraft, PricingSource, PricingStatus, build
from fatura.domain.invoice_states import INITIAL_STATES, InvoiceStatus
from fatura.domain.money import MAX_CENTS
from fatura.domain.offer import Discount, PaymentMethod
from fatura.domain.product import PricingMode

VERSION = UUID(int=1)


def fixed(cents: int, *rules: tuple[int, int, int | None], place: int = 0) -> BilledProduct:
    discounts = tuple(Discount(*rule) for rule in rules)
    return BilledProduct(UUID(int=100 + place), f"Product {place}", PricingMode.FIXED, cents, discounts)


def variable(place: int = 0) -> BilledProduct:
    return BilledProduct(UUID(int=100 + place), f"Product {place}", PricingMode.ENDPOINT, None, ())


def terms(*products: BilledProduct, months: int = 1, installments: int = 1) -> BillingTerms:
    return BillingTerms(VERSION, months, installments, products)


@pytest.mark.parametrize(
    ("products", "status", "total", "fixed_total"),
    [
        pytest.param([fixed(500)], "ready", 500, 500, id="positive total"),
        pytest.param([fixed(0)], "paid", 0, 0, id="a free product"),
        pytest.param([fixed(500, (100, 1, None))], "paid", 0, 0, id="100 % off"),
        pytest.param([fixed(1, (51, 1, 1))], "paid", 0, 0, id="rounded down to zero"),
        pytest.param([fixed(0), fixed(500)], "ready", 500, 500, id="free and priced"),
        pytest.param([variable()], "draft", None, 0, id="variable alone"),
        pytest.param([fixed(500), variable()], "draft", None, 500, id="variable and fixed"),
        pytest.param([fixed(0), variable()], "draft", None, 0, id="variable and free"),
    ],
)
def test_an_invoice_is_created_ready_paid_or_draft(products, status, total, fixed_total):
    """[D-24, D-9, spec 3.3 rule 2]"""
    draft = build(terms(*products), cycle=1, method=PaymentMethod.PIX)
    assert (draft.status, draft.total_cents, draft.fixed_total_cents) == (status, total, fixed_total)
    assert draft.has_pending_items is (total is None)
    assert draft.status in INITIAL_STATES


@pytest.mark.parametrize(
    ("method", "maximum", "installments"),
    [
        ("card", 1, None),
        ("card", 2, 2),
        ("card", 12, 12),
        ("pix", 1, None),
        ("boleto", 1, None),
        ("pix", 12, None),  # a card plan, but this subscription pays by pix [D-20]
        ("boleto", 12, None),
    ],
)
def test_installments_are_the_maximum_of_a_card_plan(method, maximum, installments):
    """[D-25, spec 2.3 payment method]"""
    draft = build(terms(fixed(500), installments=maximum), cycle=1, method=PaymentMethod(method))
    assert draft.installments == installments
    assert draft.payment_method == method


def test_items_have_months_price_discount_and_amount():
    """[spec 2.5 item]"""
    draft = build(
        terms(fixed(1000, (25, 2, 2), place=0), variable(place=1), fixed(7, place=2), months=3),
        cycle=2,
        method=PaymentMethod.CARD,
    )
    table, priced = PricingSource.TABLE, PricingStatus.PRICED
    assert draft.items == (
        ItemDraft(UUID(int=100), "Product 0", table, priced, 3, 1000, 25, 2250),
        ItemDraft(
            UUID(int=101), "Product 1", PricingSource.ENDPOINT, PricingStatus.PENDING, 3, None, None, None
        ),
        ItemDraft(UUID(int=102), "Product 2", table, priced, 3, 7, None, 21),
    )
    assert draft.cycle == 2


def test_a_whole_discount_is_a_priced_item_of_zero():
    """[D-7]"""
    [item] = build(terms(fixed(500, (100, 1, 1))), cycle=1, method=PaymentMethod.PIX).items
    assert (item.pricing_status, item.amount_cents, item.discount_percent) == ("priced", 0, 100)


@given(st.lists(st.none() | st.integers(0, MAX_CENTS), min_size=1, max_size=20), st.integers(1, 12))
def test_total_is_the_sum_of_priced_items(prices, cycle):
    """[D-9, spec 2.5 invoice]"""
    products = [
        variable(place) if cents is None else fixed(cents, place=place) for place, cents in enumerate(prices)
    ]
    draft = build(terms(*products), cycle=cycle, method=PaymentMethod.PIX)
    known = sum(cents for cents in prices if cents is not None)
    assert draft.fixed_total_cents == known
    assert draft.total_cents == (None if None in prices else known)
    expected = "draft" if None in prices else "ready" if known else "paid"
    assert draft.status is InvoiceStatus(expected)
