"""When the nightly sweep of a connection runs, and which charges it compares (D-161)."""

from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.charging import DAY, HOUR, PAID_POLLS_AFTER, jitter

WINDOW = PAID_POLLS_AFTER[-1] + timedelta(days=10)
"""A sweep compares the charges that were created this long before the last complete sweep, or later.

So a sweep after a gap of any length compares all charges that could change in the gap.
"""
NIGHT_FROM, NIGHT = HOUR, 4 * HOUR
"""Sweeps begin from 01:00 to 05:00 in Sao Paulo, each connection always at the same time."""
MARGIN = timedelta(hours=1)
"""A charge that was made so close to an end of the swept time may be missing in the list, because clocks differ."""
PAID_LISTED_AGAIN_AFTER = timedelta(days=6)
"""A paid charge that a sweep found is looked for again after this time; an unpaid one is looked for every night."""


def next_sweep_at(connection_id: UUID, *, now: datetime) -> datetime:
    """Return the next time of night at which the connection's sweep begins."""
    today = local_date(now)
    place = NIGHT_FROM + jitter(connection_id, within=NIGHT)
    at = start_of_day(today) + place
    return at if at > now else start_of_day(today + DAY) + place
