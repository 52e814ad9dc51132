"""Due dates of charges, and the schedules of polling and retrying (D-5, D-26, D-33 to D-35, D-125)."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from itertools import accumulate
from uuid import UUID

import holidays

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.credentials import Mode
from fatura.domain.offer import PaymentMethod

BOLETO_CLEARING_DAYS = 2
"""Number of banking days after the due date within which the payment of a boleto arrives (D-26)."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURLY_BEFORE, HOURLY_AFTER = DAY, 3 * DAY
"""Hourly polls begin HOURLY_BEFORE before the last payment day starts, and end HOURLY_AFTER after it starts (D-55)."""
POLL_FOR = timedelta(days=400)
"""The engine stops polling an unpaid charge when its due date is this long ago."""
PAID_POLLS_AFTER = tuple(timedelta(days=days) for days in (1, 7, 30, 60, 120))
"""Times after the payment at which a paid charge is polled for refunds and disputes, even without a webhook (D-55)."""
PAID_POLL_JITTER = timedelta(hours=1)
"""Maximum delay of a paid charge's polls, which spreads the polls of charges that were paid at the same instant."""
LONGEST_BUDGET_WAIT = timedelta(minutes=3)
"""Maximum wait for a poll budget. A longer stored wait is ignored: a host with a wrong clock has stored it (D-5)."""
ISSUES_APART = timedelta(hours=24)
"""Minimum time between issuing two invoices of one subscription that wait for issuance at the same time (D-57)."""
BEHIND_DELAY = timedelta(hours=1)
"""Pause before the next try to issue an invoice that waits for an earlier cycle's invoice (D-57)."""
MISSING_AFTER = timedelta(hours=1)
"""A charge counts as missing when two polls or look-ups, at least this far apart, have not found it (D-56)."""
ISSUE_DELAYED_AFTER = timedelta(hours=1)
"""`invoice.issue_delayed` is emitted when issuance has failed for this long (D-34)."""
EMPTY_LOOKUPS_NEEDED = 2
"""A charge of unknown outcome is treated as absent after this many look-ups that found no charge (D-33)."""
EMPTY_LOOKUP_GAP = timedelta(seconds=60)
"""If a look-up found no charge and was counted, the next one counts only after this time (D-33)."""
LOOKUP_COUNTS_AFTER = timedelta(seconds=80)
"""A look-up that finds no charge counts only if the charge's request was reserved at least this long before.

A younger request may still be in transit.
"""
CANCEL_AGAIN_AFTER = timedelta(minutes=10)
"""Pause before the second attempt to cancel a charge that should not be paid (D-125, D-171)."""
LATE_CHECK_GAPS = tuple(timedelta(minutes=minutes) for minutes in (10, 50, 300, 1080))
"""Pause before each late look-up of a charge that is believed absent (D-125).

The late look-ups are therefore 10 minutes, 1 hour, 6 hours and 24 hours after the charge was marked `absent`.
"""
RETRY_DELAYS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 20, 30, 60))
"""Delay after each consecutive transient failure of issuance. The last delay repeats without limit (D-34)."""

MAX_RETRIES = 10
"""Maximum number of retries of an invoice's issuance that clients may request without a pause (D-113)."""
RETRY_GAP = timedelta(minutes=15)
"""Time after which one more retry becomes possible. In a day, at most 106 retries of an invoice are possible."""
RETRY_WINDOW = MAX_RETRIES * RETRY_GAP
"""Time in which MAX_RETRIES further retries become possible."""


def paced_retry(paced_until: datetime | None, *, real_now: datetime) -> tuple[datetime, timedelta]:
    """Count a retry of an invoice's issuance; return the new `paced_until`, and how long the client must wait first.

    Each retry moves `paced_until` ahead by RETRY_GAP, starting from now if `paced_until` has passed. If the new value
    is more than RETRY_WINDOW after now, the client must wait, and the caller does not store the new value. If a stored
    value is more than RETRY_WINDOW after now, it comes from a host with a wrong clock, and is ignored.
    """
    if paced_until is None or not real_now < paced_until <= real_now + RETRY_WINDOW:
        paced_until = real_now
    following = paced_until + RETRY_GAP
    return following, max(following - RETRY_WINDOW - real_now, timedelta(0))


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
    """Return the last day on which an unpaid charge is not overdue yet (D-26)."""
    if method is not PaymentMethod.BOLETO:
        return charge_due_date
    day = banking_day_on_or_after(charge_due_date)
    for _ in range(BOLETO_CLEARING_DAYS):
        day = banking_day_on_or_after(day + timedelta(days=1))
    return day


def charge_due_date(due_date: date, *, today: date) -> date:
    """Return the due date to send to the gateway: today instead of a past date, which gateways refuse (D-5)."""
    return max(due_date, today)


def is_past_due(charge_due_date: date, method: PaymentMethod, *, today: date) -> bool:
    """Return whether an unpaid charge is overdue today (D-26)."""
    return today > last_payment_day(charge_due_date, method)


def poll_phase(invoice_id: UUID, mode: Mode) -> int:
    """Return the point of each hour or day at which an invoice is polled, in thousandths of the hour or day (D-55).

    An invoice always has the same phase, and the phases spread the polls of live accounts evenly. In sandbox accounts,
    all invoices have the same phase, so that a test clock stops once per hour and not once per invoice.
    """
    return invoice_id.int % 1000 if mode is Mode.LIVE else 0


def next_poll_at(
    charge_due_date: date, method: PaymentMethod, *, polled_at: datetime, phase: int
) -> datetime | None:
    """Return when an unpaid charge is polled again, or None when polling ends (D-55).

    Polls are hourly from one day before to two days after the last payment day, and daily at other times.
    """
    today = local_date(polled_at)
    if today >= charge_due_date + POLL_FOR:
        return None
    last = last_payment_day(charge_due_date, method)
    hourly_from, daily_from = start_of_day(last - HOURLY_BEFORE), start_of_day(last + HOURLY_AFTER)
    daily = start_of_day(today) + DAY * phase // 1000
    if daily <= polled_at:
        daily = start_of_day(today + DAY) + DAY * phase // 1000
    hour = max(polled_at.replace(minute=0, second=0, microsecond=0), hourly_from)
    hourly = hour + HOUR * phase // 1000
    if hourly <= polled_at:
        hourly += HOUR
    return min(daily, hourly) if hourly < daily_from else daily


@dataclass(frozen=True, slots=True)
class PollBudget:
    """How fast a connection's charges may be polled (D-55).

    `free_from` is when the next poll is allowed, or None before the first poll.
    """

    per_minute: int
    free_from: datetime | None

    def delay(self, *, real_now: datetime) -> timedelta:
        """Return how long the next poll must wait."""
        if self.free_from is None or self.free_from > real_now + LONGEST_BUDGET_WAIT:
            return timedelta()
        return max(self.free_from - real_now, timedelta())

    def room(self, *, real_now: datetime) -> int:
        """Return how many polls may be made now: 0 if the next poll must wait, else those of a second, at least one."""
        return 0 if self.delay(real_now=real_now) else max(self.per_minute // 60, 1)

    def free_after(self, polls: int, *, real_now: datetime) -> datetime:
        """Return when a further poll is allowed if `polls` polls are made as soon as the budget allows them."""
        return real_now + self.delay(real_now=real_now) + polls * timedelta(minutes=1) // self.per_minute


def jitter(invoice_id: UUID, *, within: timedelta) -> timedelta:
    """Return a delay from 0 to `within` that is always the same for an invoice, and spreads many invoices evenly."""
    return within * (invoice_id.int % 1000) // 1000


def next_paid_poll_at(invoice_id: UUID, *, paid_at: datetime, polled_at: datetime) -> datetime | None:
    """Return when a paid charge is polled again, or None after its last scheduled poll (D-55)."""
    delay = jitter(invoice_id, within=PAID_POLL_JITTER)
    later = (paid_at + after + delay for after in PAID_POLLS_AFTER)
    return next((at for at in later if at > polled_at), None)


def next_cancellation_at(found_at: datetime, *, now: datetime) -> datetime | None:
    """Return when to try again to cancel a second charge that was found at `found_at`, or None after POLL_FOR (D-125).

    The pause equals the time since `found_at`, but lasts at least CANCEL_AGAIN_AFTER and at most a day. For a charge
    whose cancellation a merchant requested, `found_at` is the time of the request (D-171).
    """
    since = now - found_at
    return now + min(max(since, CANCEL_AGAIN_AFTER), DAY) if since < POLL_FOR else None


def next_incomplete_at(since: datetime, *, now: datetime) -> datetime | None:
    """Return when to repeat a late look-up that was incomplete, or None after POLL_FOR (D-125).

    The look-ups have been incomplete since the instant `since`. The pause is a quarter of the time since then, but at
    least CANCEL_AGAIN_AFTER and at most a day.
    """
    passed = now - since
    return now + min(max(passed // 4, CANCEL_AGAIN_AFTER), DAY) if passed < POLL_FOR else None


def next_late_look_at(found_at: datetime, *, now: datetime) -> datetime | None:
    """Return the time of the next late look-up of a charge or refund, or None after the last one (D-181).

    `found_at` is when the charge was found not payable, or when the refund failed. LATE_CHECK_GAPS are the
    pauses between look-ups.
    """
    return next((found_at + after for after in accumulate(LATE_CHECK_GAPS) if found_at + after > now), None)


def retry_delay(failures: int) -> timedelta:
    """Return the pause before the next call after `failures` consecutive transient failures (D-34)."""
    assert failures >= 1, failures
    return RETRY_DELAYS[min(failures, len(RETRY_DELAYS)) - 1]
