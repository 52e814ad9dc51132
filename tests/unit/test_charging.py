"""Due dates of charges, when a charge is overdue, when it is polled, and when issuance is retried."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.calendar import start_of_day
from fatura.domain.charging import (
    charge_due_date,
    is_banking_day,
    is_past_due,
    last_payment_day,
    next_poll_at,
    poll_phase,
    retry_delay,
)
from fatura.domain.credentials import Mode
from fatura.domain.offer import PaymentMethod
from tests.support.world import rows

HOLIDAYS_OF_2026 = """01-01 04-03 04-21 05-01 09-07 10-12 11-02 11-15 11-20 12-25"""
"""Brazil's national holidays by law, including Good Friday and, since 2024, Black Awareness Day."""
DATES = st.dates(date(2024, 1, 1), date(2045, 1, 1))
INSTANTS = st.timedeltas(timedelta(0), timedelta(days=7000)).map(datetime(2024, 1, 1, tzinfo=UTC).__add__)


def day(text: str) -> date:
    return date.fromisoformat(text)


def local(text: str) -> datetime:
    """Return an instant from the date and time in Sao Paulo."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("America/Sao_Paulo"))


def test_2026_has_these_banking_days():
    """Each day of 2026 is compared with a list of holidays that was written by hand. [D-26]"""
    closed = {day(f"2026-{each}") for each in HOLIDAYS_OF_2026.split()}
    for offset in range(365):
        each = date(2026, 1, 1) + timedelta(days=offset)
        assert is_banking_day(each) is (each.isoweekday() <= 5 and each not in closed), each


@pytest.mark.parametrize(
    ("due", "last", "_why"),
    rows("""
        due        | last       | why
        2026-03-10 | 2026-03-12 | Tuesday, two days to clear
        2026-03-12 | 2026-03-16 | Thursday, over a weekend
        2026-03-13 | 2026-03-17 | Friday
        2026-03-14 | 2026-03-18 | Saturday, paid on Monday
        2026-04-02 | 2026-04-07 | Thursday before Good Friday
        2026-04-03 | 2026-04-08 | Good Friday, paid on Monday
        2026-09-07 | 2026-09-10 | Independence Day, a Monday
        2026-12-24 | 2026-12-29 | Christmas and a weekend
        2026-12-31 | 2027-01-05 | New Year and a weekend
    """),
)
def test_a_boleto_can_be_paid_two_banking_days_after_its_due_date(due, last, _why):
    """A due date on a weekend or holiday first moves to the next banking day. [D-26]"""
    assert last_payment_day(day(due), PaymentMethod.BOLETO) == day(last)
    assert not is_past_due(day(due), PaymentMethod.BOLETO, today=day(last))
    assert is_past_due(day(due), PaymentMethod.BOLETO, today=day(last) + timedelta(days=1))


@pytest.mark.parametrize("method", [PaymentMethod.CARD, PaymentMethod.PIX])
@pytest.mark.parametrize("due", ["2026-03-10", "2026-03-14", "2026-04-03"])
def test_card_and_pix_can_be_paid_until_the_due_date(method, due):
    """[D-26]"""
    assert last_payment_day(day(due), method) == day(due)
    assert not is_past_due(day(due), method, today=day(due))
    assert is_past_due(day(due), method, today=day(due) + timedelta(days=1))


@given(DATES)
def test_a_boleto_may_clear_on_three_banking_days(due):
    """[D-26]"""
    last = last_payment_day(due, PaymentMethod.BOLETO)
    days = [due + timedelta(days=offset) for offset in range((last - due).days + 1)]
    assert sum(map(is_banking_day, days)) == 3
    assert is_banking_day(last)


@pytest.mark.parametrize(
    ("due", "today", "given_date"),
    [
        ("2026-03-10", "2026-03-07", "2026-03-10"),
        ("2026-03-10", "2026-03-10", "2026-03-10"),
        ("2026-03-10", "2026-03-11", "2026-03-11"),
        ("2026-03-10", "2026-08-01", "2026-08-01"),
    ],
)
def test_the_gateway_gets_no_due_date_in_the_past(due, today, given_date):
    """[D-5]"""
    assert charge_due_date(day(due), today=day(today)) == day(given_date)


@pytest.mark.parametrize(
    ("polled_at", "expected"),
    [
        ("03-07 15:03", "03-08 00:00"),  # daily before the hourly polls
        ("03-08 15:03", "03-09 00:00"),
        ("03-09 00:00", "03-09 01:00"),  # hourly from the day before the last day of payment
        ("03-09 15:03", "03-09 16:00"),
        ("03-10 23:30", "03-11 00:00"),
        ("03-12 22:59", "03-12 23:00"),
        ("03-12 23:00", "03-13 00:00"),  # daily again from the third day after the last day of payment
        ("03-13 00:00", "03-14 00:00"),
        ("09-13 11:00", "09-14 00:00"),
    ],
)
def test_polls_are_hourly_around_the_last_day_of_payment(polled_at: str, expected: str) -> None:
    """[D-35 polling, D-55 asking]"""
    following = next_poll_at(
        day("2026-03-10"), PaymentMethod.PIX, polled_at=local(f"2026-{polled_at}"), phase=0
    )
    assert following == local(f"2026-{expected}")


def test_polls_end_400_days_after_the_due_date() -> None:
    """[D-35 polling]"""
    due = day("2026-03-10")
    for days, is_polled in ((399, True), (400, False), (1000, False)):
        at = start_of_day(due + timedelta(days=days))
        assert (next_poll_at(due, PaymentMethod.PIX, polled_at=at, phase=0) is not None) is is_polled


@given(DATES, INSTANTS, st.integers(0, 999))
def test_the_next_poll_is_at_most_a_day_ahead(due, polled_at, phase):
    """[D-35 polling, D-55 asking]"""
    following = next_poll_at(due, PaymentMethod.BOLETO, polled_at=polled_at, phase=phase)
    assert following is None or timedelta(0) < following - polled_at <= timedelta(days=1)


def test_polls_of_live_accounts_are_spread() -> None:
    """[D-55 asking]"""
    invoice_ids = [uuid4() for _ in range(1000)]
    phases = [poll_phase(each, Mode.LIVE) for each in invoice_ids]
    assert {poll_phase(each, Mode.SANDBOX) for each in invoice_ids} == {0}

    for polled_at, hours in (("03-10 12:00", 1), ("03-20 00:00", 24)):
        began = local(f"2026-{polled_at}")
        following = [
            next_poll_at(day("2026-03-10"), PaymentMethod.PIX, polled_at=began, phase=phase)
            for phase in phases
        ]
        tenths = Counter(int((at - began) / timedelta(hours=hours) * 10) for at in following if at)
        assert all(60 < tenths[tenth] < 140 for tenth in range(10)), tenths


def test_an_unpaid_charge_is_polled_within_an_hour_after_its_last_day():
    """[D-26, D-35 polling, D-55 asking]"""
    for offset in range(365):
        due = date(2026, 1, 1) + timedelta(days=offset)
        last = last_payment_day(due, PaymentMethod.BOLETO)
        ends_at = start_of_day(last + timedelta(days=1))
        at = ends_at - timedelta(minutes=1)
        following = next_poll_at(due, PaymentMethod.BOLETO, polled_at=at, phase=offset)
        assert following is not None
        if following < ends_at:
            following = next_poll_at(due, PaymentMethod.BOLETO, polled_at=following, phase=offset)
        assert following is not None
        assert ends_at <= following < ends_at + timedelta(hours=1)


def test_retry_delays_grow_up_to_an_hour():
    """[D-34]"""
    delays = [retry_delay(failures) for failures in range(1, 1000)]
    assert delays == sorted(delays)
    assert delays[0] > timedelta(0)
    assert set(delays[6:]) == {timedelta(hours=1)}
