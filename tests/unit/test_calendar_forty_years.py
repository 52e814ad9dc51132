"""Due dates, discounts and amounts over forty years, compared with independent calculations.

The calculations in this file add months with dateutil, compute amounts with fractions, and list the discount of
each cycle in a dictionary.
"""

from datetime import date, timedelta
from fractions import Fraction
from math import floor
from uuid import UUID

import pytest
from dateutil.relativedelta import relativedelta

from fatura.domain.calendar import next_period_start
from fatura.domain.invoice import BilledProduct, BillingTerms, build
from fatura.domain.offer import Discount, PaymentMethod
from fatura.domain.product import PricingMode

CHARGE_DAYS = range(1, 29)
PERIODS = (1, 3, 6, 12)
YEARS = 40
SCHEDULE = [(35, 2, 3), (100, 4, 4), (7, 1, 30), (13, 20, None)]
"""Overlapping discounts (percent, fromCycle, toCycle) in priority order. The last discount has no end."""


def period_starts(first: date, *, charge_day: int, months: int, years: int) -> list[date]:
    starts = [first]
    while starts[-1] < first + relativedelta(years=years):
        starts.append(next_period_start(starts[-1], charge_day=charge_day, period_months=months))
    return starts


@pytest.mark.parametrize("months", PERIODS)
def test_due_dates_are_whole_periods_after_the_anchor(months):
    """[D-4]"""
    for charge_day in CHARGE_DAYS:
        for month in range(1, months + 1):
            anchor = date(2021, month, charge_day)
            starts = period_starts(anchor, charge_day=charge_day, months=months, years=YEARS)
            assert len(starts) > YEARS * 12 // months
            assert starts == [anchor + relativedelta(months=n * months) for n in range(len(starts))]


@pytest.mark.parametrize("months", PERIODS)
def test_cycles_after_a_first_date_on_another_day_fall_on_the_charge_day(months):
    """[D-4, D-3]"""
    for charge_day in CHARGE_DAYS:
        for day in (1, 2, 15, 27, 28, 29, 30, 31):
            starts = period_starts(date(2024, 1, day), charge_day=charge_day, months=months, years=2)
            first, second, *later = starts
            one_period = first.replace(day=min(day, 28)) + relativedelta(months=months)
            assert timedelta(0) <= second - one_period < timedelta(days=31)
            assert second.day == charge_day
            assert later == [second + relativedelta(months=n * months) for n in range(1, len(later) + 1)]


def percents_by_cycle(cycles: int) -> dict[int, int]:
    """Return the discount of each cycle. If several rules cover a cycle, the first rule applies."""
    found: dict[int, int] = {}
    for percent, first, last in reversed(SCHEDULE):
        found |= dict.fromkeys(range(first, (last or cycles) + 1), percent)
    return found


def half_up(exact: Fraction) -> int:
    return floor(exact + Fraction(1, 2))


@pytest.mark.parametrize("months", PERIODS)
def test_each_cycle_costs_the_period_price_less_its_discount(months):
    """[spec 2.3 amount, D-7]"""
    cycles = YEARS * 12 // months
    percents = percents_by_cycle(cycles)
    rules = tuple(Discount(*rule) for rule in SCHEDULE)
    for cents in (1, 99, 9990, 12_345_678_901):
        product = BilledProduct(UUID(int=1), "Gym", PricingMode.FIXED, cents, rules)
        terms = BillingTerms(UUID(int=2), months, 1, (product,))
        for cycle in range(1, cycles + 1):
            [item] = build(terms, cycle=cycle, method=PaymentMethod.PIX).items
            percent = percents.get(cycle)
            assert item.discount_percent == percent
            assert item.amount_cents == half_up(months * cents * Fraction(100 - (percent or 0), 100))
