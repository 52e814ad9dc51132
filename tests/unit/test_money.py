"""The amount of an item, in integer cents with halves rounded up, compared with exact fractions."""

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.money import MAX_CENTS, item_amount_cents


def half_up(exact: Fraction) -> int:
    return floor(exact + Fraction(1, 2))


def oracle(cents: int, months: int, percent: int) -> int:
    return half_up(Fraction(months * cents) * Fraction(100 - percent, 100))


@pytest.mark.parametrize("months", [1, 3, 6, 12])
def test_every_percentage_of_small_prices_is_exact(months):
    """[spec 2.3 amount, D-7]"""
    for cents in (*range(201), *range(MAX_CENTS - 3, MAX_CENTS + 1)):
        for percent in range(101):
            found = item_amount_cents(cents, months=months, discount_percent=percent)
            assert found == oracle(cents, months, percent)
            assert type(found) is int


@given(st.integers(0, MAX_CENTS), st.sampled_from([1, 3, 6, 12]), st.integers(0, 100))
def test_amounts_differ_from_the_exact_value_by_half_a_cent_at_most(cents, months, percent):
    """[D-7, D-8]"""
    found = item_amount_cents(cents, months=months, discount_percent=percent)
    exact = Fraction(months * cents * (100 - percent), 100)
    assert Fraction(-1, 2) < found - exact <= Fraction(1, 2)
    assert 0 <= found <= months * cents


@given(st.integers(0, MAX_CENTS), st.sampled_from([1, 3, 6, 12]), st.integers(1, 100))
def test_more_discount_never_costs_more(cents, months, percent):
    """[spec 2.3 amount]"""
    more = item_amount_cents(cents, months=months, discount_percent=percent)
    assert more <= item_amount_cents(cents, months=months, discount_percent=percent - 1)


@pytest.mark.parametrize(
    ("monthly", "months", "percent", "amount"),
    [
        pytest.param(9990, 1, 20, 7992, id="exact"),
        pytest.param(9990, 12, 0, 119_880, id="a year without discount"),
        pytest.param(5, 1, 50, 3, id="2.5 goes up"),
        pytest.param(17, 1, 50, 9, id="8.5 goes up"),
        pytest.param(1, 1, 51, 0, id="0.49 goes down"),
        pytest.param(1, 1, 50, 1, id="0.5 goes up"),
        pytest.param(33, 3, 50, 50, id="49.5 is rounded once, over all months"),
        pytest.param(9990, 12, 100, 0, id="a whole discount is free"),
        pytest.param(0, 12, 10, 0, id="free stays free"),
        pytest.param(MAX_CENTS, 12, 0, 11_999_999_999_988, id="the largest"),
        pytest.param(MAX_CENTS, 12, 1, 11_879_999_999_988, id="beyond the precision of a float"),
    ],
)
def test_an_item_costs_months_at_its_price_less_the_discount(monthly, months, percent, amount):
    """[spec 2.3 amount, spec 2.2 monthly price, D-7]"""
    assert item_amount_cents(monthly, months=months, discount_percent=percent) == amount


@pytest.mark.parametrize(
    ("lines", "percent", "amounts"),
    [
        ([1000, 333], 25, [750, 250]),  # each item is rounded separately
        ([1000, 2000], 10, [900, 1800]),
        ([100, 100], 33, [67, 67]),
    ],
)
def test_each_item_is_rounded_by_itself(lines, percent, amounts):
    """As in polarsource/polar server/tests/discount/test_model.py, the discount applies to each item. [D-7]"""
    found = [item_amount_cents(cents, months=1, discount_percent=percent) for cents in lines]
    assert found == amounts


def test_ties_go_up_as_kill_bill_rounds():
    """killbill/killbill util/currency/KillBillMoney.java uses HALF_UP, not HALF_EVEN. [D-7]"""
    found = [item_amount_cents(cents, months=1, discount_percent=50) for cents in (1, 3, 5, 7, 9)]
    assert found == [1, 2, 3, 4, 5]
