"""When the nightly sweep of a connection runs, and which charges it compares (D-161)."""

from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.charging import DAY, HOUR, PAID_POLLS_AFTER, jitter

WINDOW = PAID_POLLS_AFTER[-1] + timedelta(days=10)
"""A sweep begins with the charges that were created this long before the previous complete sweep.

So even after a long pause, a sweep compares all charges that may have changed since the previous complete sweep.
"""
NIGHT_FROM, NIGHT = HOUR, 4 * HOUR
"""Sweeps begin between 01:00 and 05:00, Sao Paulo time. A connection's sweep begins at the same time each night."""
MARGIN = timedelta(hours=1)
"""A charge created this close to the start or end of the swept time need not be in the provider's list.

The provider's clock can differ from Fatura's, so the provider may date such a charge outside the swept time.
"""
PAID_LISTED_AGAIN_AFTER = timedelta(days=6)
"""Every sweep checks the unpaid charges. A paid charge is checked again this long after a sweep noted it as listed."""


def next_sweep_at(connection_id: UUID, *, now: datetime) -> datetime:
    today = local_date(now)
    place = NIGHT_FROM + jitter(connection_id, within=NIGHT)
    at = start_of_day(today) + place
    return at if at > now else start_of_day(today + DAY) + place
