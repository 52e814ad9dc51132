"""Check the database, this host's clock, and the polls of the lanes (spec 4.1, D-5)."""

from fatura.observability import log
from fatura.store.db import DatabaseUnavailableError
from fatura.usecases import due_accounts
from fatura.usecases.clock_skew import MAX_CLOCK_SKEW
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName
from fatura.views.health import ChecksView

TRY_EVERY_SECONDS = 10
"""Minimum time between two tries of the lanes' polls, in a process that runs no lanes."""


async def check(deps: Deps) -> ChecksView:
    try:
        skew = await deps.db.ping() - deps.clock()
        if deps.lane_polls.must_try(every_seconds=TRY_EVERY_SECONDS):
            await _try_polls(deps)
    except DatabaseUnavailableError:
        return ChecksView(database=False, clock=False, workers=not deps.lane_polls.stuck())
    return ChecksView(database=True, clock=abs(skew) <= MAX_CLOCK_SKEW, workers=not deps.lane_polls.stuck())


async def _try_polls(deps: Deps) -> None:
    """Poll each lane for due work as a worker does, and note whether the poll fails.

    An API process runs no lanes, so only this function shows whether polls fail.
    """
    for lane in LaneName:
        try:
            await due_accounts.of(lane)(deps)
        except Exception as error:  # noqa: BLE001 - any exception would also stop a worker's poll
            if deps.lane_polls.note_failure(lane):
                log.warning("lane.cannot_poll", lane=lane, error=f"{type(error).__name__}: {error}")
        else:
            deps.lane_polls.note_success(lane)
