"""How late this engine is, asked of the tables at a scrape: the oldest due work of each lane, and what piles up."""

from fatura.observability import gauge
from fatura.store import lateness
from fatura.store.db import DatabaseUnavailableError
from fatura.usecases.deps import Deps

_oldest = gauge(
    "fatura_oldest_work_seconds",
    "Age of the oldest work that is due and not done, over all accounts; 0 when nothing is due.",
    "lane",
)
_due = gauge(
    "fatura_subscriptions_due_not_generated",
    f"Subscriptions whose next invoice is due and not generated, counted up to {lateness.MOST_COUNTED:,}.",
)
_untaken = gauge(
    "fatura_events_waiting_to_be_pushed",
    "Events that no worker has taken up yet for an endpoint that is up.",
)


async def measure(deps: Deps) -> None:
    """Set the gauges afresh; while the database is away they show nothing rather than something old."""
    real_now = deps.clock()
    try:
        async with deps.db.discovery() as look:
            oldest = await lateness.discover_oldest(look, real_now=real_now)
            due = await lateness.discover_due_cycles(look, real_now=real_now)
            untaken = await lateness.discover_untaken_events(look)
    except DatabaseUnavailableError:
        _oldest.clear()
        _due.set(float("nan"))
        _untaken.set(float("nan"))
        return
    for lane, age in oldest.items():
        _oldest.labels(lane).set(age.total_seconds())
    _due.set(due)
    _untaken.set(untaken)
