"""The lowest amount that terms charge, and its check against a provider's minimums (D-49)."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.connection import Connection, check_minimums
from fatura.domain.errors import EngineError
from fatura.domain.invoice import BilledProduct, BillingTerms, amounts_by_cycle, build, lowest_charge_cents
from fatura.domain.offer import Discount, PaymentMethod
from fatura.domain.product import PricingMode

VERSION = UUID(int=1)
LAST = 12
"""No discount of these tests begins or ends after this cycle."""


def connection(least: int | None, each: int | None) -> Connection:
    return Connection(
        connection_id=UUID(int=2),
        provider="sandbox",
        label=None,
        active=True,
        issues_charges=True,
        methods=tuple(PaymentMethod),
        max_installments=12,
        product_catalog=False,
        refunds=True,
        created_at=datetime(2033, 1, 1, tzinfo=UTC),
        min_amount_cents=least,
        min_installment_cents=each,
    )


def fixed(cents: int, *rules: Discount) -> BilledProduct:
    return BilledProduct(UUID(int=3), "Gym", PricingMode.FIXED, cents, rules)


@st.composite
def discounts(draw: st.DrawFn) -> Discount:
    first = draw(st.integers(1, LAST))
    last = draw(st.none() | st.integers(first, LAST))
    return Discount(draw(st.integers(1, 100)), first, last)


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.lists(discounts(), max_size=4)), min_size=1, max_size=3),
    st.integers(1, LAST + 3),
)
def test_the_lowest_charge_is_that_of_the_cheapest_cycle_to_come(
    products: list[tuple[int, list[Discount]]], from_cycle: int
) -> None:
    """Cycles that cost nothing are not charged. [D-49 minimums, D-155, D-9]"""
    terms = BillingTerms(VERSION, 1, 1, tuple(fixed(cents, *rules) for cents, rules in products))
    cycles = range(from_cycle, from_cycle + LAST + 2)
    totals = [build(terms, cycle=cycle, method=PaymentMethod.PIX).total_cents for cycle in cycles]

    found = lowest_charge_cents(amounts_by_cycle(terms), from_cycle=from_cycle)

    assert found == min((total for total in totals if total), default=0)


def test_the_amounts_of_variable_products_are_not_known() -> None:
    """[D-49 minimums, D-155]"""
    variable = BilledProduct(UUID(int=4), "Usage", PricingMode.ENDPOINT, None, ())
    amounts = amounts_by_cycle(BillingTerms(VERSION, 1, 1, (fixed(1), variable)))

    assert (amounts, lowest_charge_cents(amounts, from_cycle=1)) == ([], 0)


@pytest.mark.parametrize(
    ("least", "each", "cents", "installments", "refusal"),
    [
        (None, None, 1, 12, None),
        (500, None, 500, None, None),
        (500, None, 499, None, "amount"),
        (500, None, 0, None, None),
        (500, 100, 499, 12, "amount"),
        (None, 100, 1200, 12, None),
        (None, 100, 1199, 12, "installments"),
        (None, 100, 1, None, None),
        (None, 100, 0, 12, None),
    ],
)
def test_a_charge_below_a_minimum_is_refused(
    least: int | None, each: int | None, cents: int, installments: int | None, refusal: str | None
) -> None:
    """[D-49 minimums, D-155]"""
    if refusal is None:
        check_minimums(connection(least, each), cents, installments=installments)
        return
    with pytest.raises(EngineError) as refused:
        check_minimums(connection(least, each), cents, installments=installments)
    assert refused.value.problem.type == f"engine.{refusal}_unsupported"


@pytest.mark.parametrize(("cents", "gateway_max"), [(1199, 11), (200, 2), (199, 1), (1, 1)])
def test_the_refusal_says_how_many_installments_are_possible(cents: int, gateway_max: int) -> None:
    """[D-49 minimums, D-155, D-21]"""
    with pytest.raises(EngineError) as refused:
        check_minimums(connection(None, 100), cents, installments=12)

    assert refused.value.meta == {
        "maxInstallments": 12,
        "gatewayMax": gateway_max,
        "amountCents": cents,
        "minInstallmentCents": 100,
        "provider": "sandbox",
    }
