"""Check the database, this host's clock, and the polls of the lanes (spec 4.1, D-5)."""

import asyncio
from functools import partial

from fatura.observability import log
from fatura.store.db import DatabaseUnavailableError
from fatura.usecases import due_accounts
from fatura.usecases.database_clock import MAX_CLOCK_SKEW
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName
from fatura.views.health import ChecksView

TRY_EVERY_SECONDS = 10
"""In a process that runs no lanes, the minimum time between two runs of `_try_polls`."""
TRY_FOR_SECONDS = 1
"""How long a check waits for `_try_polls`. A longer run continues after the check, and later checks show its result."""


async def check(deps: Deps) -> ChecksView:
    """Return the results of the checks. Calls within a second share them (D-202)."""
    return await deps.checks.get(partial(_check, deps))


async def _check(deps: Deps) -> ChecksView:
    try:
        skew = await deps.db.ping() - deps.clock.host()
    except DatabaseUnavailableError:
        return ChecksView(database=False, clock=False, workers=not deps.lane_polls.stuck())
    if deps.lane_polls.must_try(every_seconds=TRY_EVERY_SECONDS):
        deps.lane_polls.trying = asyncio.create_task(_try_polls(deps))
        await asyncio.wait({deps.lane_polls.trying}, timeout=TRY_FOR_SECONDS)
    return ChecksView(database=True, clock=abs(skew) <= MAX_CLOCK_SKEW, workers=not deps.lane_polls.stuck())


async def _try_polls(deps: Deps) -> None:
    """Poll each lane for due work as a worker does, and note whether the poll fails.

    An API process runs no lanes, so it learns only from this function whether the polls fail.
    """
    for lane in LaneName:
        try:
            await due_accounts.of(lane)(deps)
        except Exception as error:  # noqa: BLE001 - any exception would also stop a worker's poll
            if deps.lane_polls.note_failure(lane):
                log.warning("lane.cannot_poll", lane=lane, error=error)
        else:
            deps.lane_polls.note_success(lane)
