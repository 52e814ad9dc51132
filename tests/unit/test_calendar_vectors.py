"""Due dates from the tests of other billing engines, for cases in which Fatura has the same rules.

Days 29 to 31 become day 28, the highest charge day (D-4). Cases with a partial first period are omitted, because Fatura
bills whole periods. In one row from Kill Bill, Fatura's date differs because of D-3; the row says how.
"""

from datetime import date, timedelta
from itertools import islice

import pytest

from fatura.domain.calendar import LEAD, cap_day, first_cycle, next_period_start
from tests.support.world import rows


def day(text: str) -> date:
    return date.fromisoformat(text.strip())


def due_dates(start: date, months: int):
    """Yield the endless sequence of due dates of a subscription whose firstChargeDate is `start`."""
    cycle = first_cycle(start, charge_day=None, first_charge_date=start)
    due = cycle.due_date
    while True:
        yield due
        due = next_period_start(due, charge_day=cycle.charge_day, period_months=months)


def until(start: date, months: int, *, last: date) -> list[date]:
    """Return the due dates up to and including `last`."""
    found: list[date] = []
    for due in due_dates(start, months):
        if due > last:
            return found
        found.append(due)
    raise AssertionError


# getlago/lago-api: spec/services/subscriptions/organization_billing_service_spec.rb (anniversary billing)
LAGO = rows("""
    months | start      | billed on                                         | not billed on
    1      | 2021-02-20 | 2022-06-20 2022-07-20 2022-08-20                  | 2022-06-19 2022-06-21
    1      | 2021-03-31 | 2023-01-31 2023-02-28 2024-02-29 2023-04-30       |
    3      | 2021-02-20 | 2022-08-20 2022-11-20 2023-02-20 2030-05-20       | 2022-09-20
    3      | 2021-01-15 | 2022-07-15 2022-10-15 2023-01-15 2024-04-15       |
    3      | 2021-03-15 | 2022-06-15 2022-09-15 2022-12-15 2023-03-15       |
    3      | 2021-05-31 | 2023-02-28 2024-02-29 2023-11-30 2023-08-31       |
    3      | 2021-05-30 | 2023-02-28 2024-02-29 2023-11-30 2023-08-30       |
    6      | 2021-02-20 | 2022-08-20 2023-02-20 2030-08-20                  | 2022-11-20
    6      | 2021-08-30 | 2023-02-28 2024-02-29 2023-08-30                  | 2023-08-31
    12     | 2021-02-20 | 2023-02-20 2024-02-20 2030-02-20                  | 2023-01-20 2023-03-20
    12     | 2021-02-28 | 2023-02-28 2024-02-28 2030-02-28                  | 2024-02-29
    12     | 2020-02-29 | 2023-02-28 2024-02-29 2030-02-28                  |
""")


@pytest.mark.parametrize(("months", "start", "billed", "others"), LAGO)
def test_due_dates_equal_lagos_anniversaries(months, start, billed, others):
    """Days on which Lago bills nothing are not due dates. [D-4]"""
    found = until(day(start), int(months), last=date(2031, 1, 1))
    assert {cap_day(day(each)) for each in billed.split()} <= set(found)
    assert not {day(each) for each in others.split()} & set(found)


def test_lago_fifteen_months_from_new_years_eve():
    """Source: getlago/lago-api spec/scenarios/subscriptions/billing_spec.rb, in which 15 billing runs create 15
    invoices. [D-4]
    """
    published = """2023-01-31 2023-02-28 2023-03-31 2023-04-30 2023-05-31 2023-06-30 2023-07-31 2023-08-31
        2023-09-30 2023-10-31 2023-11-30 2023-12-31 2024-01-31 2024-02-29 2024-03-31"""
    found = list(islice(due_dates(date(2022, 12, 31), 1), 16))
    assert found[0] == date(2022, 12, 31)
    assert found[1:] == [cap_day(day(each)) for each in published.split()]


# killbill/killbill: invoice/src/test/.../TestInAdvanceBillingIntervalDetail.java; `day` is Kill Bill's billing day
KILL_BILL_FIRST = rows("""
    start      | day | first cycle | how it compares
    2012-01-16 | 17  | 2012-01-17  | same
    2012-02-16 | 14  | 2012-03-14  | same for monthly periods; for yearly periods, Kill Bill has 2013-02-14
    2012-07-16 | 15  | 2012-08-15  | same
    2012-03-02 | 3   | 2012-03-03  | same
    2012-03-03 | 3   | 2012-03-03  | same
    2012-03-04 | 3   | 2012-04-03  | same
""")


@pytest.mark.parametrize(("start", "charge_day", "first", "_how"), KILL_BILL_FIRST)
def test_kill_bill_first_billing_day(start, charge_day, first, _how):
    """Kill Bill's date is the first charge day on or after the start. [D-3]"""
    cycle = first_cycle(day(start) - LEAD, charge_day=int(charge_day), first_charge_date=None)
    assert (cycle.period_start, cycle.due_date) == (day(first), day(first))


@pytest.mark.parametrize(
    ("start", "target", "periods"),
    [
        # TestInAdvanceBillingIntervalDetail: three periods, billed in advance
        ("2017-01-31", "2017-03-31", 3),
        # TestInvoiceDateUtils: the third period begins on 2012-09-16
        ("2012-07-16", "2012-09-15", 2),
        ("2012-07-16", "2012-09-16", 3),
        ("2012-07-16", "2012-09-17", 3),
    ],
)
def test_kill_bill_periods_begun(start, target, periods):
    """Source: killbill/killbill. `periods` is the number of monthly periods that begin by the target date. [D-4]"""
    assert len(until(day(start), 1, last=day(target))) == periods


def test_kill_bill_months_on():
    """Source: killbill/killbill TestInvoiceDateUtils. The due dates stay on the 8th for eight months. [D-4]"""
    found = list(islice(due_dates(date(2016, 4, 8), 1), 8))
    assert found == [date(2016, 4 + months, 8) for months in range(8)]


# meteroid-oss/meteroid: crates/meteroid-store/src/utils/periods.rs, test_calculate_elapsed_cycles
METEROID = rows("""
    months | start      | target     | elapsed
    1      | 2024-01-01 | 2024-01-01 | 0
    1      | 2024-01-01 | 2024-01-15 | 0
    1      | 2024-01-01 | 2024-02-01 | 1
    1      | 2024-01-01 | 2024-02-02 | 1
    1      | 2024-01-01 | 2024-06-15 | 5
    1      | 2024-01-01 | 2024-07-01 | 6
    1      | 2021-01-01 | 2024-01-01 | 36
    1      | 2024-06-01 | 2024-01-01 | 0
    3      | 2024-01-01 | 2024-01-15 | 0
    3      | 2024-01-01 | 2024-04-01 | 1
    3      | 2024-01-01 | 2024-07-01 | 2
    3      | 2024-01-01 | 2024-07-15 | 2
    12     | 2021-01-01 | 2021-06-15 | 0
    12     | 2021-01-01 | 2022-01-01 | 1
    12     | 2021-01-01 | 2024-06-15 | 3
    1      | 2024-01-31 | 2024-02-15 | 0
    1      | 2024-01-31 | 2024-02-29 | 1
    1      | 2024-01-31 | 2024-03-31 | 2
""")


@pytest.mark.parametrize(("months", "start", "target", "elapsed"), METEROID)
def test_meteroid_elapsed_cycles(months, start, target, elapsed):
    """Meteroid's `elapsed` is the number of cycles that have ended by the target date. [D-4]"""
    begun = until(day(start), int(months), last=day(target))
    assert max(0, len(begun) - 1) == int(elapsed)


@pytest.mark.parametrize("months", [1, 3, 6, 12])
def test_meteroid_every_date_lies_in_one_period(months):
    """[D-4]"""
    start = date(2024, 1, 31)
    starts = list(islice(due_dates(start, months), 14))
    for offset in range((starts[12] - start).days):
        target = start + timedelta(days=offset)
        elapsed = len(until(start, months, last=target)) - 1
        assert starts[elapsed] <= target <= starts[elapsed + 1] - timedelta(days=1)


# flexprice/flexprice: internal/types/date_test.go, billing_anchor_scenarios_test.go. Cases with
# periods other than 1, 3, 6 or 12 whole months are omitted.
FLEXPRICE = rows("""
    months | start      | published next
    1      | 2024-01-31 | 2024-02-29
    1      | 2024-02-29 | 2024-03-29
    1      | 2025-02-28 | 2025-03-28
    12     | 2024-02-29 | 2025-02-28
    12     | 2023-02-28 | 2024-02-28
    6      | 2024-07-01 | 2025-01-01
""")


@pytest.mark.parametrize(("months", "start", "following"), FLEXPRICE)
def test_flexprice_next_billing_date(months, start, following):
    """The second due date is the date in Flexprice's tests, but never after day 28. [D-4]"""
    assert list(islice(due_dates(day(start), int(months)), 2))[1] == cap_day(day(following))


def test_polar_anchor_does_not_drift():
    """In polarsource/polar#10664, a subscription that starts on Jan 31 renews on Feb 29, and then on the 29th of every
    month. Fatura keeps the charge day. [D-4]
    """
    found = list(islice(due_dates(date(2025, 1, 31), 1), 26))
    assert found[0] == date(2025, 1, 31)
    assert {due.day for due in found[1:]} == {28}
    assert [(due.year * 12 + due.month) - (2025 * 12 + 1) for due in found] == list(range(26))
