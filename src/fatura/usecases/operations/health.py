"""Check that the database answers and that this host's clock agrees with the database's (spec 4.1, D-5)."""

from datetime import timedelta

from fatura.store.db import DatabaseUnavailableError
from fatura.usecases.deps import Deps
from fatura.views.health import ChecksView

MAX_CLOCK_SKEW = timedelta(seconds=30)
"""Maximum difference from the database's clock at which this host may generate invoices and create charges (D-5)."""
MAX_PUSH_SKEW = timedelta(seconds=15)
"""Maximum difference from the database's clock at which this host may deliver events.

It is smaller than MAX_CLOCK_SKEW, because wrong clocks could let two workers hold an endpoint's lease, and events of
an invoice could then arrive out of order.
"""


async def check(deps: Deps) -> ChecksView:
    """Check the database, which must answer within two seconds, and this host's clock (spec 4.1)."""
    try:
        return ChecksView(database=True, clock=await clock_is_trusted(deps))
    except DatabaseUnavailableError:
        return ChecksView(database=False, clock=False)


async def clock_is_trusted(deps: Deps) -> bool:
    """Return whether this host's clock agrees with the database's (D-5). Raises DatabaseUnavailableError."""
    return abs(await deps.db.ping() - deps.clock()) <= MAX_CLOCK_SKEW
