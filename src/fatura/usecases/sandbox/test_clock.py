"""The test clock: a stored target, and a driver that runs the real engine through every due instant (D-45)."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto

from fatura.domain import shapes
from fatura.domain.account import Account
from fatura.domain.credentials import Mode
from fatura.domain.errors import CLOCK_CONFLICT, EngineError, invalid_fields
from fatura.observability import log
from fatura.store import discovery
from fatura.store.accounts import accounts
from fatura.store.sandbox import test_clock
from fatura.store.sandbox.test_clock import StoredClock
from fatura.usecases.deps import Deps
from fatura.usecases.lane_names import LaneName
from fatura.usecases.transaction import Work, in_transaction

LEASE = timedelta(seconds=60)
WAIT_SECONDS = 100
"""How long a caller waits before it is answered 202 (D-45)."""
LOOK_EVERY_SECONDS = 0.05
MAX_ADVANCE = timedelta(days=3660)
"""How far one call may advance the clock."""

DRIVE_SECONDS = 5
"""How long one batch of a drive lasts before the lease is handed back."""

RunLane = Callable[[Deps, Account], Awaitable[int]]


class Step(Enum):
    """What became of the clock at one step of a drive."""

    MOVED = auto()
    WAITED = auto()
    ENDED = auto()


async def read(work: Work) -> shapes.Shape:
    """Return the account's now, and how far an advance has come. Raises EngineError: `engine.clock_conflict`."""
    stored = await test_clock.find(work.tx)
    if stored is None:
        raise _live()
    return _shape(work, stored)


def _shape(work: Work, stored: StoredClock) -> shapes.Shape:
    shape = {"now": shapes.instant(work.now), "status": stored.status, "processed": stored.processed}
    return shape if stored.target_at is None else shape | {"target": shapes.instant(stored.target_at)}


def _live() -> EngineError:
    return EngineError(
        CLOCK_CONFLICT, "A live account has no test clock; open a sandbox account to move time."
    )


async def advance(deps: Deps, account: Account, *, to: datetime | None, days: int | None) -> shapes.Shape:
    """Set the target and wait until a worker has driven the clock there, at most 100 s (D-45).

    The answer's `status` is still `advancing` when that was not enough.
    Raises EngineError: `engine.clock_conflict`, `engine.invalid_request`.
    """

    async def start(work: Work) -> None:
        await _start(work, to=to, days=days)

    if account.mode is Mode.LIVE:
        raise _live()
    await in_transaction(deps, account, start)
    give_up_at = time.monotonic() + WAIT_SECONDS
    while True:
        shape = await in_transaction(deps, account, read)
        if shape["status"] == "ready" or time.monotonic() >= give_up_at:
            return shape
        await asyncio.sleep(LOOK_EVERY_SECONDS)


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
        now = shapes.instant(work.now)
        raise EngineError(CLOCK_CONFLICT, f"The clock shows {now} and cannot go back.", meta={"now": now})
    await test_clock.start(work.tx, target)
    work.notify(LaneName.TEST_CLOCK)


async def drive(deps: Deps, account: Account, lanes: Mapping[str, RunLane]) -> int:
    """Drive one account's clock towards its target, instant by instant, for a few seconds.

    Whoever finds it still advancing goes on, after a crash when the lease has ended. Returns how much was done.
    """

    async def claim(work: Work) -> StoredClock | None:
        real_now = deps.clock()
        return await test_clock.claim(work.tx, real_now=real_now, lease_until=real_now + LEASE)

    stored = await in_transaction(deps, account, claim)
    if stored is None or stored.target_at is None:
        return 0
    processed = Counter(stored.processed)
    hand_back_at = time.monotonic() + DRIVE_SECONDS
    while time.monotonic() < hand_back_at:
        worked = await _run_lanes(deps, account, lanes, processed=processed)
        step = await _step(deps, account, stored.target_at, processed=processed)
        if step is Step.ENDED:
            return processed.total()
        if step is Step.WAITED and not worked:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
    await _hand_back(deps, account, processed)
    return processed.total()


async def _run_lanes(
    deps: Deps, account: Account, lanes: Mapping[str, RunLane], *, processed: Counter[str]
) -> int:
    """Run each lane once; one that fails is told, and tried again at the next pass."""
    worked = 0
    for name, run in lanes.items():
        try:
            count = await run(deps, account)
        except Exception:  # noqa: BLE001 - told in full; the clock must not stand still for ever
            log.exception("test_clock.lane_failed", lane=name, account_id=str(account.account_id))
            count = 0
        processed[name] += count
        worked += count
    return worked


async def _hand_back(deps: Deps, account: Account, processed: Counter[str]) -> None:
    """Let any worker go on, this one included: a long drive must neither hold up a stop nor other accounts."""

    async def effect(work: Work) -> None:
        await test_clock.note_progress(work.tx, processed, lease_until=deps.clock())

    await in_transaction(deps, account, effect)


async def _step(deps: Deps, account: Account, drive_to: datetime, *, processed: Counter[str]) -> Step:
    """Keep the progress and the lease, and move the clock on to the next due instant when nothing is due now."""

    async def move(work: Work) -> Step:
        stored = await test_clock.lock(work.tx)
        if stored is None or stored.target_at != drive_to:
            return Step.ENDED  # another driver got there first
        next_at = await discovery.next_due_at(work.tx)
        waits = next_at is not None and next_at <= work.now
        if not waits and work.now >= drive_to:
            await test_clock.finish(work.tx, processed)
            return Step.ENDED
        if not waits:
            instant = drive_to if next_at is None else min(next_at, drive_to)
            await accounts.set_clock_offset(work.tx, max(instant - deps.clock(), work.account.clock_offset))
        await test_clock.note_progress(work.tx, processed, lease_until=deps.clock() + LEASE)
        return Step.WAITED if waits else Step.MOVED

    return await in_transaction(deps, account, move)
