"""When a charge falls due, is asked after and is past due, and how issuance is retried (D-5, D-26, D-34, D-35)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cache

import holidays

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.offer import PaymentMethod

BOLETO_CLEARING_DAYS = 2
"""Banking days a boleto takes to clear after its due date (D-26)."""
POLL_DAILY_FOR = timedelta(days=60)
"""How long after the due date an unpaid charge is asked after every day; later once a week (D-35)."""
POLL_FOR = timedelta(days=400)
"""When an unpaid charge is no longer asked after by itself."""
ISSUE_DELAYED_AFTER = timedelta(hours=1)
"""When `invoice.issue_delayed` is told about an invoice that cannot be issued (D-34)."""
EMPTY_LOOKUPS_NEEDED = 2
EMPTY_LOOKUP_GAP = timedelta(seconds=60)
"""A charge of unknown outcome is believed absent after two empty look-ups this far apart (D-33)."""
LOOKUP_COUNTS_AFTER = timedelta(seconds=80)
"""How long after a sending a look-up may still be too early to prove absence: the lease and a call's deadline."""
LATE_CHECK_GAPS = tuple(timedelta(minutes=minutes) for minutes in (10, 50, 300, 1080))
"""Gaps between the looks for a charge that was believed absent, from then on: over a day in all (D-125)."""
RETRY_DELAYS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 20, 30, 60))
"""Delays between transient failures of issuance; the last one repeats for ever (D-34)."""


class AttemptState(StrEnum):
    """What is known of one attempt to create a charge (D-33): `sending` may exist, `absent` does not."""

    SENDING = "sending"
    ABSENT = "absent"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    PARKED = "parked"


@cache
def _national_holidays() -> "holidays.HolidayBase":
    return holidays.country_holidays("BR")


def is_banking_day(day: date) -> bool:
    """Say whether banks clear on this day: neither a weekend nor a national holiday (D-26)."""
    saturday = 5
    return day.weekday() < saturday and day not in _national_holidays()


def banking_day_on_or_after(day: date) -> date:
    """Return the day itself or the next banking day."""
    while not is_banking_day(day):
        day += timedelta(days=1)
    return day


def last_payment_day(charge_due_date: date, method: PaymentMethod) -> date:
    """Return the day after which an unpaid charge is past due (D-26)."""
    if method is not PaymentMethod.BOLETO:
        return charge_due_date
    day = banking_day_on_or_after(charge_due_date)
    for _ in range(BOLETO_CLEARING_DAYS):
        day = banking_day_on_or_after(day + timedelta(days=1))
    return day


def charge_due_date(due_date: date, *, today: date) -> date:
    """Return the due date given to the gateway, which takes no date in the past (D-5)."""
    return max(due_date, today)


def is_past_due(charge_due_date: date, method: PaymentMethod, *, today: date) -> bool:
    """Say whether an unpaid charge is overdue when the gateway is asked today (D-26)."""
    return today > last_payment_day(charge_due_date, method)


def next_poll_at(charge_due_date: date, *, asked_at: datetime) -> datetime | None:
    """Return when an unpaid charge is asked after again: at the start of days, ever more rarely (D-35).

    Daily until 60 days after the due date, then weekly, then (after 400 days) no more: None.
    """
    today = local_date(asked_at)
    if today < charge_due_date + POLL_DAILY_FOR:
        return start_of_day(today + timedelta(days=1))
    if today < charge_due_date + POLL_FOR:
        return start_of_day(today + timedelta(days=7))
    return None


def retry_delay(failures: int) -> timedelta:
    """Return how long to wait after the n-th transient failure in a row, counted from 1 (D-34)."""
    assert failures >= 1, failures
    return RETRY_DELAYS[min(failures, len(RETRY_DELAYS)) - 1]


@dataclass(frozen=True, slots=True)
class ChargeAttempt:
    """One attempt as committed before the first byte leaves (D-33).

    `first_sent_at` is real time, by which keys expire at the gateway; the others are the account's clock.
    `known_charge_ids` were found by a restore: the attempt is asked after by them, and never sent again.
    """

    attempt: int
    state: AttemptState
    amount_cents: int
    charge_due_date: date
    first_sent_at: datetime
    sent_at: datetime
    empty_lookups: int
    looked_up_at: datetime | None
    known_charge_ids: Sequence[str] = ()
