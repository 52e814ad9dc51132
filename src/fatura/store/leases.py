"""Recognize leases that end too late. A host with a wrong clock has written them."""

from datetime import datetime, timedelta

LONGEST_LEASE = timedelta(minutes=3)
"""Maximum time until a valid lease ends.

The engine takes no lease for more than 110 s. If a lease ends after `horizon`, a host with a wrong clock wrote it,
before the host measured how far its clock differs from the database's clock. Claims treat such a lease as expired.
"""


def horizon(real_now: datetime) -> datetime:
    """Return the latest instant at which a valid lease can end. A lease that ends later counts as expired."""
    return real_now + LONGEST_LEASE
