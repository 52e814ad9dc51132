"""Forty years of every charge day and period: dates, discounts and amounts against calculators of our own making.

dateutil adds the months from the anchor, fractions round the money, and the discount is painted, not looked up.
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
"""(percent, fromCycle, toCycle) in priority order: rules that overlap, end, and never end."""


def walk(start: date, *, charge_day: int, months: int) -> list[date]:
    """Return the period starts of forty years, as the billing run steps through them."""
    starts = [start]
    while starts[-1] < start + relativedelta(years=YEARS):
        starts.append(next_period_start(starts[-1], charge_day=charge_day, period_months=months))
    return starts


@pytest.mark.parametrize("months", PERIODS)
def test_every_charge_day(months):
    """The n-th due date is the anchor plus n periods, from every month of a year. [D-4]"""
    for charge_day in CHARGE_DAYS:
        for month in range(1, 13):
            anchor = date(2021, month, charge_day)
            starts = walk(anchor, charge_day=charge_day, months=months)
            assert len(starts) > YEARS * 12 // months
            assert starts == [anchor + relativedelta(months=n * months) for n in range(len(starts))]


@pytest.mark.parametrize("months", PERIODS)
def test_every_charge_day_after_another_first_date(months):
    """Cycle 1 may fall on any day of a month; all later ones fall on the charge day, a period apart. [D-4, D-3]"""
    for charge_day in CHARGE_DAYS:
        for day in (1, 2, 15, 27, 28, 29, 30, 31):
            first, second, *later = walk(date(2024, 1, day), charge_day=charge_day, months=months)
            whole = first.replace(day=min(day, 28)) + relativedelta(months=months)
            assert timedelta(0) <= second - whole < timedelta(days=31)
            assert second.day == charge_day
            assert later == [second + relativedelta(months=n * months) for n in range(1, len(later) + 1)]


def painted(cycles: int) -> dict[int, int]:
    """Return the percentage of each cycle: rules painted from the last to the first, so that the first stays."""
    found: dict[int, int] = {}
    for percent, first, last in reversed(SCHEDULE):
        found |= dict.fromkeys(range(first, (cycles if last is None else last) + 1), percent)
    return {cycle: percent for cycle, percent in found.items() if cycle <= cycles}


def half_up(exact: Fraction) -> int:
    return floor(exact + Fraction(1, 2))


@pytest.mark.parametrize("months", PERIODS)
def test_amounts_of_every_cycle(months):
    """Each cycle's item costs the months' price less the painted discount, half up. [spec 2.3 amount, D-7]"""
    cycles = YEARS * 12 // months
    percents = painted(cycles)
    rules = tuple(Discount(*rule) for rule in SCHEDULE)
    for cents in (1, 99, 9990, 12_345_678_901):
        product = BilledProduct(UUID(int=1), "Gym", PricingMode.FIXED, cents, rules)
        terms = BillingTerms(UUID(int=2), months, 1, (product,))
        for cycle in range(1, cycles + 1):
            [item] = build(terms, cycle=cycle, method=PaymentMethod.PIX).items
            percent = percents.get(cycle)
            assert item.discount_percent == percent
            assert item.amount_cents == half_up(months * cents * Fraction(100 - (percent or 0), 100))
