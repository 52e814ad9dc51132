"""Dates in Sao Paulo, and the due dates and periods of cycles."""

from datetime import UTC, date, datetime, timedelta

import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.calendar import (
    FirstCycle,
    cap_day,
    first_cycle,
    generation_instant,
    latest_first_charge,
    local_date,
    next_generation_instant,
    next_period_start,
    start_of_day,
)

MICROSECOND = timedelta(microseconds=1)


def day(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(text)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("instant", "local"),
    [
        # Until February 2019, clocks in Sao Paulo changed twice a year. Kill Bill had bugs on days with a
        # clock change: killbill/killbill#743, #1074, #139.
        pytest.param("2018-11-04T02:59:59Z", "2018-11-03", id="before the missing midnight"),
        pytest.param("2018-11-04T03:00:00Z", "2018-11-04", id="at 01:00, there was no midnight"),
        pytest.param("2018-02-18T01:59:59Z", "2018-02-17", id="the first 23:59:59"),
        pytest.param("2018-02-18T02:00:00Z", "2018-02-17", id="23:00 again"),
        pytest.param("2018-02-18T02:59:59Z", "2018-02-17", id="the second 23:59:59, in the 25th hour"),
        pytest.param("2018-02-18T03:00:00Z", "2018-02-18", id="after the day of 25 hours"),
        pytest.param("2026-03-01T02:59:59.999Z", "2026-02-28", id="no summer time since 2019"),
        pytest.param("2026-03-01T03:00:00Z", "2026-03-01", id="UTC-3"),
    ],
)
def test_an_instant_has_the_date_of_sao_paulo(instant, local):
    """[D-1, spec 2.1 dates]"""
    assert local_date(at(instant)) == day(local)


@pytest.mark.parametrize(
    ("local", "instant", "hours"),
    [
        ("2018-11-03", "2018-11-03T03:00:00Z", 24),
        ("2018-11-04", "2018-11-04T03:00:00Z", 23),
        ("2018-02-17", "2018-02-17T02:00:00Z", 25),
        ("2018-02-18", "2018-02-18T03:00:00Z", 24),
        ("2026-12-10", "2026-12-10T03:00:00Z", 24),
    ],
)
def test_a_day_begins_at_its_first_instant(local, instant, hours):
    """On days with a clock change, midnight may not exist. [D-1]"""
    start = start_of_day(date.fromisoformat(local))
    assert start == at(instant)
    following = start_of_day(date.fromisoformat(local) + timedelta(days=1))
    assert following - start == timedelta(hours=hours)


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)))
def test_each_instant_belongs_to_one_day(local):
    """[D-1]"""
    start = start_of_day(local)
    assert start.tzinfo is UTC
    assert local_date(start) == local
    assert local_date(start - MICROSECOND) == local - timedelta(days=1)


@pytest.mark.parametrize(
    ("given_day", "first_charge", "expected"),
    [
        # Each result is (charge day, first period start, first due date) of a subscription created on 2026-01-31.
        (None, None, ("28", "2026-01-31", "2026-02-03")),
        (31 - 3, None, ("28", "2026-02-28", "2026-02-28")),
        (2, None, ("2", "2026-03-02", "2026-03-02")),
        (3, None, ("3", "2026-02-03", "2026-02-03")),
        (4, None, ("4", "2026-02-04", "2026-02-04")),
        (None, "2026-01-31", ("28", "2026-01-31", "2026-01-31")),
        (None, "2026-02-10", ("10", "2026-02-10", "2026-02-10")),
        (None, "2026-03-29", ("28", "2026-03-29", "2026-03-29")),
        (5, "2026-02-10", ("5", "2026-02-10", "2026-02-10")),
    ],
)
def test_the_first_cycle_has_these_dates(given_day, first_charge, expected):
    """[D-3, spec 4.4 chargeDay, spec 4.4 firstChargeDate]"""
    today = date(2026, 1, 31)
    cycle = first_cycle(today, charge_day=given_day, first_charge_date=day(first_charge))
    charge_day, start, due = expected
    assert cycle == FirstCycle(int(charge_day), date.fromisoformat(start), date.fromisoformat(due))


@given(st.dates(date(2021, 1, 1), date(2061, 1, 1)), st.integers(1, 28))
def test_with_a_charge_day_alone_the_first_charge_is_on_its_next_date_after_the_lead(today, charge_day):
    """[D-3]"""
    due = today + timedelta(days=3)
    while due.day != charge_day:
        due += timedelta(days=1)
    expected = FirstCycle(charge_day, due, due)
    assert first_cycle(today, charge_day=charge_day, first_charge_date=None) == expected


@given(st.dates(date(2021, 1, 1), date(2061, 1, 1)))
def test_without_day_and_date_the_charge_is_as_early_as_possible(today):
    """The charge day is the day of creation, or 28 if that day is later. [D-3]"""
    cycle = first_cycle(today, charge_day=None, first_charge_date=None)
    assert cycle == FirstCycle(min(today.day, 28), today, today + timedelta(days=3))


@given(
    st.dates(date(2021, 1, 1), date(2061, 1, 1)),
    st.integers(1, 28),
    st.sampled_from([1, 3, 6, 12]),
)
def test_the_second_cycle_is_a_whole_period_after_any_first(start, charge_day, months):
    """[D-4]"""
    expected = cap_day(start) + relativedelta(months=months)
    while expected.day != charge_day:
        expected += timedelta(days=1)
    following = next_period_start(start, charge_day=charge_day, period_months=months)
    assert following == expected
    assert following >= cap_day(start) + relativedelta(months=months)
    assert following < cap_day(start) + relativedelta(months=months + 1)


@pytest.mark.parametrize("start", ["2026-01-28", "2026-01-29", "2026-01-30", "2026-01-31"])
def test_a_start_late_in_the_month_counts_as_the_28th(start):
    """[D-4]"""
    following = next_period_start(date.fromisoformat(start), charge_day=28, period_months=1)
    assert following == date(2026, 2, 28)


@pytest.mark.parametrize(
    ("due", "instant"),
    [
        ("2026-12-10", "2026-12-07T03:00:00Z"),
        ("2027-01-02", "2026-12-30T03:00:00Z"),
        ("2028-03-02", "2028-02-28T03:00:00Z"),
        ("2018-11-07", "2018-11-04T03:00:00Z"),
    ],
)
def test_generation_is_due_three_days_before_the_due_date(due, instant):
    """[D-2, spec 8 generation lead]"""
    assert generation_instant(date.fromisoformat(due)) == at(instant)


@given(st.dates(date(2021, 1, 1), date(2061, 1, 1)))
def test_generation_begins_when_today_reaches_it(due):
    """Generation begins when the third day before the due date begins in Sao Paulo. [D-2]"""
    instant = generation_instant(due)
    assert due - timedelta(days=3) <= local_date(instant)
    assert due - timedelta(days=3) > local_date(instant - MICROSECOND)


@pytest.mark.parametrize(
    ("due", "generated_at", "expected"),
    [
        pytest.param("2026-12-10", "2026-11-07T03:00:00Z", "2026-12-07T03:00:00Z", id="on time"),
        pytest.param("2026-12-10", "2026-12-06T03:00:00Z", "2026-12-07T03:00:00Z", id="a day before"),
        pytest.param("2026-12-10", "2026-12-07T02:59:59Z", "2026-12-08T02:59:59Z", id="just before"),
        pytest.param("2026-12-10", "2026-12-07T03:00:00Z", "2026-12-08T03:00:00Z", id="just missed"),
        pytest.param("2026-12-10", "2027-05-20T15:30:00Z", "2027-05-21T15:30:00Z", id="long missed"),
    ],
)
def test_missed_cycles_are_24_hours_apart(due, generated_at, expected):
    """[D-5, D-244]"""
    found = next_generation_instant(date.fromisoformat(due), generated_at=at(generated_at))
    assert found == at(expected)


@pytest.mark.parametrize(
    ("today", "latest"),
    [("2026-01-31", "2031-01-31"), ("2026-11-20", "2031-11-20"), ("2027-02-28", "2032-02-28")],
)
def test_the_first_charge_is_at_most_five_years_ahead(today, latest):
    """[D-4]"""
    assert latest_first_charge(date.fromisoformat(today)) == date.fromisoformat(latest)
