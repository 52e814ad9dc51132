"""When the nightly sweep of a connection runs, and which charges it compares (D-161)."""

from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.charging import DAY, HOUR, PAID_POLLS_AFTER, jitter

WINDOW = PAID_POLLS_AFTER[-1] + timedelta(days=10)
"""A sweep begins with the charges that were created this long before the most recent complete sweep.

So even after a long pause, a sweep compares all charges that could have changed since that sweep.
"""
NIGHT_FROM, NIGHT = HOUR, 4 * HOUR
"""Sweeps begin between 01:00 and 05:00, Sao Paulo time. A connection's sweep begins at the same time each night."""
MARGIN = timedelta(hours=1)
"""The provider's list can lack a charge that was created this close to the start or end of the swept time.

The reason is that the provider's clock can differ from Fatura's.
"""
PAID_LISTED_AGAIN_AFTER = timedelta(days=6)
"""Every sweep checks unpaid charges. A paid charge is checked again this long after it was most recently listed."""


def next_sweep_at(connection_id: UUID, *, now: datetime) -> datetime:
    today = local_date(now)
    place = NIGHT_FROM + jitter(connection_id, within=NIGHT)
    at = start_of_day(today) + place
    return at if at > now else start_of_day(today + DAY) + place
