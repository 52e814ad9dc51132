"""Dates in America/Sao_Paulo, and the start, due date and generation time of cycles (D-1 to D-5)."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

ZONE = ZoneInfo("America/Sao_Paulo")
EARLIEST_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
"""Earliest instant that a request, an operator or a gateway may give (D-50, D-52)."""
LEAD = timedelta(days=3)
"""Time between an invoice's generation and its due date (spec 8, D-2)."""
CATCH_UP_GAP = timedelta(hours=24)
"""Minimum time between generating the invoices of two missed cycles of one subscription (D-5)."""
LAST_CHARGE_DAY = 28
FIRST_CHARGE_YEARS_AHEAD = 5
"""Maximum distance of `firstChargeDate` from today, in years (D-4)."""


def local_date(instant: datetime) -> date:
    """Return the Sao Paulo date of an instant (D-1)."""
    return instant.astimezone(ZONE).date()


def start_of_day(day: date) -> datetime:
    """Return the first instant of a Sao Paulo day, in UTC.

    A day on which summer time begins has no midnight. For example, 2018-11-04 starts at 01:00, which is 03:00Z.
    """
    return datetime(day.year, day.month, day.day, tzinfo=ZONE).astimezone(UTC)


def cap_day(day: date) -> date:
    """Return the date, or the 28th of its month for a 29th, 30th or 31st (D-3, D-4)."""
    return day.replace(day=min(day.day, LAST_CHARGE_DAY))


def on_or_after(day: date, charge_day: int) -> date:
    """Return the first date that is not before `day` and has the day of the month `charge_day` (1..28)."""
    candidate = day.replace(day=charge_day)
    return candidate if candidate >= day else add_months(candidate, 1)


def add_months(day: date, months: int) -> date:
    """Return the date `months` later, with the same day of the month, which must be 1..28."""
    assert day.day <= LAST_CHARGE_DAY, day
    month_index = day.year * 12 + day.month - 1 + months
    return date(month_index // 12, month_index % 12 + 1, day.day)


def latest_first_charge(today: date) -> date:
    """Return the latest date that is accepted as `firstChargeDate` (D-4)."""
    return add_months(cap_day(today), 12 * FIRST_CHARGE_YEARS_AHEAD) + timedelta(
        days=today.day - cap_day(today).day
    )


@dataclass(frozen=True, slots=True)
class FirstCycle:
    """A subscription's charge day, and the period start and due date of its first cycle."""

    charge_day: int
    period_start: date
    due_date: date


def first_cycle(today: date, *, charge_day: int | None, first_charge_date: date | None) -> FirstCycle:
    """Return the first cycle of a subscription created today (D-3)."""
    anchor = charge_day or cap_day(first_charge_date or today).day
    if first_charge_date is not None:
        return FirstCycle(anchor, first_charge_date, first_charge_date)
    if charge_day is not None:
        due_date = on_or_after(today + LEAD, charge_day)
        return FirstCycle(anchor, due_date, due_date)
    return FirstCycle(anchor, today, today + LEAD)


def next_period_start(period_start: date, *, charge_day: int, period_months: int) -> date:
    """Return the start of the next cycle's period, which is also that cycle's due date (D-4)."""
    return on_or_after(add_months(cap_day(period_start), period_months), charge_day)


def generation_instant(due_date: date) -> datetime:
    """Return when to generate a cycle's invoice: at the start of the day that is LEAD before the due date (D-2)."""
    return start_of_day(due_date - LEAD)


def next_generation_instant(due_date: date, *, generated_at: datetime) -> datetime:
    """Return when to generate the invoice of the cycle with this due date (D-5).

    `generated_at` is when the previous cycle's invoice was generated. The result is the cycle's own generation instant,
    or CATCH_UP_GAP after `generated_at` if that is later.
    """
    return max(generation_instant(due_date), generated_at + CATCH_UP_GAP)
