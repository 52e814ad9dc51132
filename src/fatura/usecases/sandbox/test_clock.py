"""Advance the test clock (D-45).

`advance` stores a target time. A worker moves the clock towards the target, from one due instant to the next, and runs
the lanes of background work at each instant.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto

from msgspec import UNSET

from fatura.domain.account import Account
from fatura.domain.credentials import Mode
from fatura.domain.errors import CLOCK_CONFLICT, EngineError, invalid_fields
from fatura.observability import log
from fatura.store import discovery
from fatura.store.accounts import accounts
from fatura.store.sandbox import test_clock
from fatura.store.sandbox.test_clock import StoredClock
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName, Work, in_transaction
from fatura.views.sandbox import TestClockView
from fatura.views.view import instant

LEASE = timedelta(seconds=60)
WAIT_SECONDS = 100
"""How long `advance` waits for the clock to reach the target; after that the route answers 202 (D-45)."""
POLL_SECONDS = 0.05
MAX_ADVANCE = timedelta(days=3660)
"""Maximum distance that one call may advance the clock."""
RUN_SECONDS = 5
"""How long one run moves a clock before it releases the lease, so that other accounts get a turn."""

RunLane = Callable[[Deps, Account], Awaitable[int]]


class Step(Enum):
    MOVED = auto()
    WORK_IS_DUE = auto()
    ENDED = auto()


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
    )


def _no_test_clock() -> EngineError:
    return EngineError(
        CLOCK_CONFLICT, "A live account has no test clock; open a sandbox account to move time."
    )


async def advance(deps: Deps, account: Account, *, to: datetime | None, days: int | None) -> TestClockView:
    """Set the target and wait until the clock has reached it, at most WAIT_SECONDS (D-45).

    If the clock has not reached it by then, the `status` in the answer is `advancing`.
    Raises EngineError: `engine.clock_conflict`, `engine.invalid_request`.
    """
    if account.mode is Mode.LIVE:
        raise _no_test_clock()
    await in_transaction(deps, account, _start, to=to, days=days)
    give_up_at = time.monotonic() + WAIT_SECONDS
    while True:
        clock = await in_transaction(deps, account, read)
        if clock.status == "ready" or time.monotonic() >= give_up_at:
            return clock
        await asyncio.sleep(POLL_SECONDS)


async def _start(work: Work, *, to: datetime | None, days: int | None) -> None:
    stored = await test_clock.lock(work.tx)
    assert stored is not None, "a sandbox account has a clock"
    target = work.now + timedelta(days=days) if days is not None else to
    assert target is not None, "one of `to` and `days` is given"
    if target - work.now > MAX_ADVANCE:
        raise invalid_fields(
            ("to" if days is None else "days", "must be at most ten years ahead of the clock")
        )
    if stored.status == "advancing":
        raise EngineError(
            CLOCK_CONFLICT, "The clock is advancing; wait until GET /v1/test-clock says `ready`."
        )
    if target < work.now:
        now = instant(work.now)
        raise EngineError(CLOCK_CONFLICT, f"The clock shows {now} and cannot go back.", meta={"now": now})
    await test_clock.start(work.tx, target)
    work.notify(LaneName.TEST_CLOCK)


async def advance_to_target(deps: Deps, account: Account, lanes: Mapping[str, RunLane]) -> int:
    """Move an account's clock towards its target for up to RUN_SECONDS.

    Any worker's next run continues from there. After a crash, the next run must wait until the lease has expired.
    Return how much work the lanes have done since `advance` set the target.
    """
    stored = await in_transaction(deps, account, _claim)
    if stored is None or stored.target_at is None:
        return 0
    processed = Counter(stored.processed)
    release_at = time.monotonic() + RUN_SECONDS
    while time.monotonic() < release_at:
        worked = await _run_lanes(deps, account, lanes, processed=processed)
        step = await in_transaction(deps, account, _step, stored.target_at, processed=processed)
        if step is Step.ENDED:
            return processed.total()
        if step is Step.WORK_IS_DUE and not worked:
            await asyncio.sleep(POLL_SECONDS)
    await in_transaction(deps, account, _release, processed)
    return processed.total()


async def _claim(work: Work) -> StoredClock | None:
    real_now = work.deps.clock()
    return await test_clock.claim(work.tx, real_now=real_now, lease_until=real_now + LEASE)


async def _run_lanes(
    deps: Deps, account: Account, lanes: Mapping[str, RunLane], *, processed: Counter[str]
) -> int:
    """Run each lane once; return how much work was done. A failure is logged, and the next pass tries again."""
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


async def _release(work: Work, processed: Counter[str]) -> None:
    """Store progress and end the lease, so that other accounts are served before any worker continues."""
    await test_clock.note_progress(work.tx, processed, lease_until=work.deps.clock())


async def _step(work: Work, target: datetime, *, processed: Counter[str]) -> Step:
    """Store progress and renew the lease; if nothing is due, move the clock to the next due instant."""
    stored = await test_clock.lock(work.tx)
    if stored is None or stored.target_at != target:
        return Step.ENDED  # another worker reached the target
    next_at = await discovery.next_due_at(work.tx)
    is_due = next_at is not None and next_at <= work.now
    if not is_due and work.now >= target:
        await test_clock.finish(work.tx, processed)
        return Step.ENDED
    real_now = work.deps.clock()
    if not is_due:
        reached = target if next_at is None else min(next_at, target)
        await accounts.set_clock_offset(work.tx, max(reached - real_now, work.account.clock_offset))
    await test_clock.note_progress(work.tx, processed, lease_until=real_now + LEASE)
    return Step.WORK_IS_DUE if is_due else Step.MOVED
