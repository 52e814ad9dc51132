"""Move subscriptions in batches towards a stored target, each batch in a transaction of its own (D-54, D-59).

A batch locks the row of its target, so only one process works on a target at a time. After a crash, any other process
continues. The request that stored the target runs batches for some seconds, and workers run all further batches.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from fatura.domain.account import Account
from fatura.observability import log
from fatura.store.db import LockTimeoutError
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import DATABASE_FAILURES, Work, in_transaction

POLL_SECONDS = 0.05


class MoveBatch(Protocol):
    def __call__(self, work: Work, target_id: UUID, /, *, limit: int) -> Awaitable[int]: ...


class SkipNext(Protocol):
    def __call__(self, work: Work, target_id: UUID, /, *, after: UUID | None) -> Awaitable[int]: ...


@dataclass(frozen=True, slots=True)
class BatchedMove:
    """A kind of move; each function takes the id of a stored target. `name` is the prefix of the log events.

    `move` moves or skips the next subscriptions, and returns how many of them it visited. If the batch was not full,
    the result is higher by one, so a final batch that visits none returns 1. The result 0 means that the move had
    already ended, that another process works on the target, or that the account is suspended.
    `visited_to` returns the id of the subscription that was visited most recently. `skip_next` skips the first
    subscription whose id is greater than `after`.
    """

    name: str
    has_ended: Callable[[Work, UUID], Awaitable[bool]]
    move: MoveBatch
    visited_to: Callable[[Work, UUID], Awaitable[UUID | None]]
    skip_next: SkipNext


async def run_for(
    deps: Deps, account: Account, of: BatchedMove, target_id: UUID, *, seconds: float, limit: int
) -> None:
    """Run batches until the move has ended or `seconds` have passed."""
    give_up_at = time.monotonic() + seconds
    while not await in_transaction(deps, account, of.has_ended, target_id):
        if time.monotonic() >= give_up_at:
            return
        if not await _work_on(deps, account, of, target_id, limit=limit):
            await asyncio.sleep(POLL_SECONDS)


async def _work_on(deps: Deps, account: Account, of: BatchedMove, target_id: UUID, *, limit: int) -> int:
    try:
        return await run_batch(deps, account, of, target_id, limit=limit)
    except LockTimeoutError:
        # another transaction keeps a subscription locked; the target is stored, so workers try the batch again
        return 0


async def run_batch(deps: Deps, account: Account, of: BatchedMove, target_id: UUID, *, limit: int) -> int:
    """Move the next subscriptions. If the batch fails unexpectedly, move them one by one and skip those that fail.

    Returns the number of subscriptions visited, or one more if a batch was not full (see BatchedMove).
    Raises DATABASE_FAILURES.
    """
    try:
        return await in_transaction(deps, account, of.move, target_id, limit=limit)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - moved one by one below, where only the faulty subscription fails
        log.exception(f"{of.name}.batch_failed", account_id=str(account.account_id))
    visited = 0
    while visited < limit and (done := await _move_or_skip_one(deps, account, of, target_id)):
        visited += done
    return visited


async def _move_or_skip_one(deps: Deps, account: Account, of: BatchedMove, target_id: UUID) -> int:
    visited_to = await in_transaction(deps, account, of.visited_to, target_id)
    try:
        return await in_transaction(deps, account, of.move, target_id, limit=1)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - logged in full; the subscription is listed as skipped
        log.exception(f"{of.name}.subscriber_failed", account_id=str(account.account_id))
    return await in_transaction(deps, account, of.skip_next, target_id, after=visited_to)
