"""Charge attempts, due dates of charges, and the schedules of polling and retrying (D-5, D-26, D-33 to D-35, D-125)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cache
from uuid import UUID

import holidays

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.offer import PaymentMethod

BOLETO_CLEARING_DAYS = 2
"""Banking days that a boleto may need to clear after its due date (D-26)."""
POLL_DAILY_FOR = timedelta(days=60)
"""An unpaid charge is polled daily until this long after its due date, then weekly (D-35)."""
POLL_FOR = timedelta(days=400)
"""An unpaid charge is not polled any more when its due date lies this far in the past."""
ISSUE_DELAYED_AFTER = timedelta(hours=1)
"""`invoice.issue_delayed` is emitted when issuance has failed for this long (D-34)."""
EMPTY_LOOKUPS_NEEDED = 2
"""Number of empty look-ups after which a charge of unknown outcome is treated as absent (D-33)."""
EMPTY_LOOKUP_GAP = timedelta(seconds=60)
"""Minimum time between two empty look-ups that count (D-33)."""
LOOKUP_COUNTS_AFTER = timedelta(seconds=80)
"""An empty look-up counts only this long after the request was reserved. Until then, the request may be in transit."""
LATE_CHECK_GAPS = tuple(timedelta(minutes=minutes) for minutes in (10, 50, 300, 1080))
"""Gaps between the checks for a charge that was treated as absent; together they cover 24 hours (D-125)."""
RETRY_DELAYS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 20, 30, 60))
"""Delay after each consecutive transient failure of issuance; the last one repeats without limit (D-34)."""


class AttemptState(StrEnum):
    """What is known about one attempt to create a charge (D-33)."""

    SENDING = "sending"
    """The request may have been sent; its outcome is unknown until an answer is recorded."""
    ABSENT = "absent"
    """The charge probably does not exist. The same attempt is sent again."""
    CONFIRMED = "confirmed"
    """The gateway made the charge with which the invoice was issued."""
    FAILED = "failed"
    """The gateway refused the data. Only a person starts the next attempt."""
    PARKED = "parked"
    """The outcome cannot be decided without a person."""


OPEN_STATES = frozenset({AttemptState.SENDING, AttemptState.ABSENT, AttemptState.PARKED})
"""States in which a charge that is found at the gateway still confirms the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeAttempt:
    """One attempt to create an invoice's charge, committed before its request is sent (D-33).

    `first_sent_at` is real time, because gateways expire idempotency keys in real time. Other instants are on the
    account's clock. `sent_at` is when the newest request was reserved, and identifies that request.
    `known_charge_ids` are charges that a restore found. An attempt with them is looked up, never sent again (D-123).
    """

    invoice_id: UUID
    number: int
    connection_id: UUID
    state: AttemptState
    amount_cents: int
    charge_due_date: date
    first_sent_at: datetime
    sent_at: datetime
    gateway_invoice_id: str | None = None
    empty_lookups: int = 0
    looked_up_at: datetime | None = None
    known_charge_ids: Sequence[str] = ()
    error_code: str | None = None


@cache
def _national_holidays() -> "holidays.HolidayBase":
    return holidays.country_holidays("BR")


def is_banking_day(day: date) -> bool:
    """Return whether banks clear payments on this day; they do not on weekends and national holidays (D-26)."""
    saturday = 5
    return day.weekday() < saturday and day not in _national_holidays()


def banking_day_on_or_after(day: date) -> date:
    while not is_banking_day(day):
        day += timedelta(days=1)
    return day


def last_payment_day(charge_due_date: date, method: PaymentMethod) -> date:
    """Return the last day before an unpaid charge becomes overdue (D-26)."""
    if method is not PaymentMethod.BOLETO:
        return charge_due_date
    day = banking_day_on_or_after(charge_due_date)
    for _ in range(BOLETO_CLEARING_DAYS):
        day = banking_day_on_or_after(day + timedelta(days=1))
    return day


def charge_due_date(due_date: date, *, today: date) -> date:
    """Return the due date to send to the gateway: at least today, because gateways refuse past dates (D-5)."""
    return max(due_date, today)


def is_past_due(charge_due_date: date, method: PaymentMethod, *, today: date) -> bool:
    """Return whether an unpaid charge is overdue today (D-26)."""
    return today > last_payment_day(charge_due_date, method)


def next_poll_at(charge_due_date: date, *, polled_at: datetime) -> datetime | None:
    """Return the start of the day on which an unpaid charge is polled again, or None when polling ends (D-35)."""
    today = local_date(polled_at)
    if today < charge_due_date + POLL_DAILY_FOR:
        return start_of_day(today + timedelta(days=1))
    if today < charge_due_date + POLL_FOR:
        return start_of_day(today + timedelta(days=7))
    return None


def retry_delay(failures: int) -> timedelta:
    """Return the delay before the next call after the given number of consecutive transient failures (D-34)."""
    assert failures >= 1, failures
    return RETRY_DELAYS[min(failures, len(RETRY_DELAYS)) - 1]
