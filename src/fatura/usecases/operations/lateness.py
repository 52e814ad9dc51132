"""Gauges of due work, failing connections and suspended accounts, read at each scrape of `/metrics`."""

from fatura.observability import gauge
from fatura.store import lateness, suspension
from fatura.store.connections import connection_health
from fatura.store.db import DatabaseUnavailableError
from fatura.store.retention import progress
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName

_oldest = gauge(
    "fatura_oldest_work_seconds", "Age of the oldest due work over all accounts; 0 when none is due.", "lane"
)
_due = gauge(
    "fatura_subscriptions_due_not_generated",
    f"Active subscriptions whose next invoice is due for generation, counted up to {lateness.MOST_COUNTED:,}.",
)
_failing = gauge(
    "fatura_failing_connections", "Gateway connections whose calls fail; they get only single probes (D-55)."
)
_put_off = gauge(
    "fatura_subscriptions_put_off",
    "Active subscriptions whose next invoice could not be generated, counted up to "
    f"{lateness.MOST_COUNTED:,}; alert when it is above 0.",
)
_waiting_events = gauge(
    "fatura_events_waiting_to_be_pushed",
    "Events that have no delivery yet, in accounts whose webhook is enabled and answers.",
)
_suspended = gauge("fatura_suspended_accounts", "Accounts that an operator has suspended (D-242).")


async def measure(deps: Deps) -> None:
    """Set the gauges. If the database is unavailable, clear them or set them to NaN, so that no old value is shown."""
    real_now = deps.clock()
    try:
        async with deps.db.discovery() as tx:
            oldest = await lateness.discover_oldest(tx, real_now=real_now)
            age = await progress.discover_age(tx, real_now=real_now, kept_for=deps.settings.retention)
            oldest[LaneName.RETENTION] = max(oldest[LaneName.RETENTION], age)
            due = await lateness.discover_due_cycles(tx, real_now=real_now)
            failing = await connection_health.discover_failing(tx)
            put_off = await lateness.discover_put_off(tx)
            waiting = await lateness.discover_untaken_events(tx)
            suspended = len(await suspension.discover(tx))
    except DatabaseUnavailableError:
        _oldest.clear()
        _due.set(float("nan"))
        _failing.set(float("nan"))
        _put_off.set(float("nan"))
        _waiting_events.set(float("nan"))
        _suspended.set(float("nan"))
        return
    for lane, age in oldest.items():
        _oldest.labels(lane).set(age.total_seconds())
    _due.set(due)
    _failing.set(failing)
    _put_off.set(put_off)
    _waiting_events.set(waiting)
    _suspended.set(suspended)
