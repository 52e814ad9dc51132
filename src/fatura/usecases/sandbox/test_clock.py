"""Advance the test clock (D-45).

`advance` stores a target time. A worker moves the clock towards the target, from one due instant to the next, and runs
the lanes of background work at each instant. `stop` removes the target.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import UNSET

from fatura.domain.account import MAX_CLOCK_OFFSET, Account
from fatura.domain.credentials import Mode
from fatura.domain.errors import CLOCK_CONFLICT, CLOCK_LIMIT, EngineError, invalid_fields
from fatura.ids import new_id
from fatura.observability import log
from fatura.store import due_times, suspension
from fatura.store.accounts import accounts
from fatura.store.sandbox import test_clock
from fatura.store.sandbox.test_clock import StoredClock
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import (
    DATABASE_FAILURES,
    LaneName,
    Work,
    in_audited_transaction,
    in_snapshot,
    in_transaction,
)
from fatura.usecases.webhooks import webhooks
from fatura.views.sandbox import TestClockView
from fatura.views.view import instant

LEASE = timedelta(seconds=60)
RENEWALS_PER_LEASE = 6
"""How often a worker renews the lease within LEASE, so that the lease survives failed renewals."""
WAIT_SECONDS = 100
"""How long `advance` waits for the clock to reach the target; after that the route answers 202 (D-45)."""
POLL_SECONDS = 0.05
POLL_SHARE = 0.05
"""Between two reads of the clock, `advance` pauses for this share of its wait so far, but at least POLL_SECONDS."""
MAX_ADVANCE = timedelta(days=3660)
"""Maximum time by which one call may advance the clock."""
RUN_SECONDS = 5
"""How long a worker moves one account's clock before it releases the lease and serves other accounts."""
MAX_WORK = 1000
"""How much work, such as invoices and calls, a worker does for one clock before it serves other accounts."""

_NO_STOPS = frozenset({LaneName.SWEEP})
"""The clock does not stop for the work of these lanes. They run when the clock stops for another lane or at its target.

If these lanes stopped the clock, a clock that advances by a year would stop every night, even without other work.
"""

RunLane = Callable[[Deps, Account], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Step:
    """What the worker does next: run the lanes with due work, or stop if `has_ended`.

    For example, `has_ended` is true if the clock has reached its target.
    """

    due_lanes: frozenset[str] = frozenset()
    has_moved: bool = False
    has_ended: bool = False


async def read(work: Work) -> TestClockView:
    """Return the account's time and the progress towards the target. Raises EngineError: `engine.clock_conflict`."""
    stored = await test_clock.find(work.tx)
    if stored is None:
        raise _no_test_clock()
    return TestClockView(
        now=instant(work.now),
        status=stored.status,
        processed=stored.processed,
        target=UNSET if stored.target_at is None else instant(stored.target_at),
        webhook=await webhooks.read_advance(work) or UNSET,
    )


def _no_test_clock() -> EngineError:
    return EngineError(
        CLOCK_CONFLICT, "A live account has no test clock; open a sandbox account to move time."
    )


async def advance(
    deps: Deps, account: Account, *, to: datetime | None, days: int | None, draft: AuditDraft | None
) -> TestClockView:
    """Set the target and wait until the clock has reached it, at most WAIT_SECONDS (D-45).

    If the clock has not reached the target by then, or the process stops, the `status` in the answer is `advancing`.
    Raises EngineError: `engine.clock_conflict`, `engine.clock_limit`, `engine.invalid_request`.
    """
    if account.mode is Mode.LIVE:
        raise _no_test_clock()
    target = await in_audited_transaction(deps, account, draft, _start, to=to, days=days)
    started_at = time.monotonic()
    while True:
        clock = await in_snapshot(deps, account, _read_advance, target)
        waited = time.monotonic() - started_at
        if clock.status == "ready" or waited >= WAIT_SECONDS or deps.stopping.is_set():
            return clock
        await asyncio.sleep(max(waited * POLL_SHARE, POLL_SECONDS))


async def _start(work: Work, *, to: datetime | None, days: int | None) -> datetime:
    """Store the target and return it."""
    stored = await _lock(work)
    target = work.now + timedelta(days=days or 0) if to is None else to
    if target - work.now > MAX_ADVANCE:
        raise invalid_fields(("days" if to is None else "to", "must be at most ten years ahead of the clock"))
    if stored.status == "advancing":
        raise EngineError(
            CLOCK_CONFLICT,
            "The clock is advancing; wait until GET /v1/test-clock says `ready`, or stop it with "
            "DELETE /v1/test-clock/advance.",
        )
    if target < work.now:
        now = instant(work.now)
        raise EngineError(CLOCK_CONFLICT, f"The clock shows {now} and cannot go back.", meta={"now": now})
    latest = work.deps.clock() + MAX_CLOCK_OFFSET
    if target > latest:
        raise EngineError(
            CLOCK_LIMIT,
            f"A test clock ends 30 years ahead of real time, at {instant(latest)}; open another sandbox account to "
            "begin again.",
            meta={"latest": instant(latest)},
        )
    await test_clock.start(work.tx, target)
    await webhooks.begin_advance(work)
    work.audit(work.account.account_id, before={"now": instant(work.now)}, after={"target": instant(target)})
    work.notify(LaneName.TEST_CLOCK)
    return target


async def _lock(work: Work) -> StoredClock:
    """Lock the clock. Raises EngineError: `engine.clock_conflict` if the account has none."""
    stored = await test_clock.lock(work.tx)
    if stored is None:
        raise _no_test_clock()
    return stored


async def _read_advance(work: Work, target: datetime) -> TestClockView:
    """Read the clock for the request that set this target.

    Raises EngineError: `engine.clock_conflict` if the advance was stopped before the clock reached the target.
    """
    stored = await test_clock.find(work.tx)
    is_current = stored is not None and stored.target_at == target
    if not is_current and work.now < target:
        now = instant(work.now)
        detail = f"The advance was stopped; the clock shows {now}."
        raise EngineError(CLOCK_CONFLICT, detail, meta={"now": now})
    return await read(work)


async def stop(work: Work) -> None:
    """End the advance where the clock is now. If the clock is not advancing, only add an audit entry (D-214).

    Calls in progress end by themselves, and their results are recorded. Raises EngineError: `engine.clock_conflict`.
    """
    stored = await _lock(work)
    work.audit(work.account.account_id, before={"target": instant(stored.target_at)}, after={"target": None})
    if stored.status == "advancing":
        await test_clock.stop(work.tx)
        await webhooks.end_advance(work)


async def advance_to_target(deps: Deps, account: Account, lanes: Mapping[str, RunLane]) -> int:
    """Move an account's clock towards its target for RUN_SECONDS, or until MAX_WORK or the target is reached (D-214).

    Afterwards, any worker can claim the clock and continue. After a crash, workers must wait until the lease expires.
    Return how much work the lanes have done since `advance` set the target.
    """
    leased_by = new_id(deps.clock())
    stored = await in_transaction(deps, account, _claim, leased_by)
    if stored is None:
        return 0
    processed = Counter(stored.processed)
    release_at, most = time.monotonic() + RUN_SECONDS, processed.total() + MAX_WORK
    due = frozenset(lanes)
    async with _kept_lease(deps, account, leased_by):
        while time.monotonic() < release_at and processed.total() < most:
            due_lanes = {name: run for name, run in lanes.items() if name in due}
            worked = await _run_lanes(deps, account, due_lanes, processed=processed)
            step = await in_transaction(deps, account, _step, leased_by, processed=processed)
            if step.has_ended:
                return processed.total()
            if not step.has_moved and not worked:
                await asyncio.sleep(POLL_SECONDS)
            due = step.due_lanes
    await in_transaction(deps, account, _release, leased_by)
    return processed.total()


async def _claim(work: Work, leased_by: UUID) -> StoredClock | None:
    if not await suspension.may_work(work.tx):
        return None
    real_now = work.deps.clock()
    return await test_clock.claim(work.tx, leased_by, real_now=real_now, lease_until=real_now + LEASE)


@asynccontextmanager
async def _kept_lease(deps: Deps, account: Account, leased_by: UUID) -> AsyncGenerator[None]:
    """Renew the lease until the block ends, because the calls of one lane may take longer than LEASE (D-61)."""
    renewing = asyncio.create_task(_renew_lease(deps, account, leased_by))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])


async def _renew_lease(deps: Deps, account: Account, leased_by: UUID) -> None:
    while True:
        await asyncio.sleep((LEASE // RENEWALS_PER_LEASE).total_seconds())
        try:
            await in_transaction(deps, account, _renew, leased_by)
        except DATABASE_FAILURES as error:
            log.warning("test_clock.lease_not_renewed", account_id=str(account.account_id), error=error)


async def _run_lanes(
    deps: Deps, account: Account, lanes: Mapping[str, RunLane], *, processed: Counter[str]
) -> int:
    """Run each lane once; return how much work was done. A lane's failure is logged, and the lane runs again later."""
    worked = 0
    for name, run in lanes.items():
        try:
            count = await run(deps, account)
        except Exception:  # noqa: BLE001 - logged with its traceback; the other lanes must run
            log.exception("test_clock.lane_failed", lane=name, account_id=str(account.account_id))
            count = 0
        processed[name] += count
        worked += count
    return worked


async def _renew(work: Work, leased_by: UUID) -> None:
    await test_clock.renew(work.tx, leased_by, lease_until=work.deps.clock() + LEASE)


async def _release(work: Work, leased_by: UUID) -> None:
    """End the lease. Workers serve other accounts before they continue with this clock."""
    await test_clock.renew(work.tx, leased_by, lease_until=work.deps.clock())


async def _step(work: Work, leased_by: UUID, *, processed: Counter[str]) -> Step:
    """Store progress. If nothing is due, move the clock to the next due instant or the target.

    If the lease was lost, change nothing: another worker moves the clock, or the advance has ended. If the account was
    suspended, only release the lease, because its clock must stand still (D-242).
    """
    if not await suspension.may_work(work.tx):
        await _release(work, leased_by)
        return Step(has_ended=True)
    stored = await test_clock.lock(work.tx)
    if stored is None or stored.target_at is None or stored.leased_by != leased_by:
        return Step(has_ended=True)
    target = stored.target_at
    due_at = await due_times.due_by_lane(work.tx)
    stops = [at for lane, at in due_at.items() if lane not in _NO_STOPS]
    next_at = min([target, *stops])
    is_due = any(at <= work.now for at in due_at.values())
    if not is_due and work.now >= target:
        await test_clock.finish(work.tx, processed)
        await webhooks.end_advance(work)
        return Step(has_ended=True)
    if not is_due:
        offset = max(next_at - work.deps.clock(), work.account.clock_offset)
        await accounts.set_clock_offset(work.tx, offset)
    await test_clock.note_progress(work.tx, processed)
    reached = work.now if is_due else max(next_at, work.now)
    return Step(frozenset(lane for lane, at in due_at.items() if at <= reached), has_moved=not is_due)
