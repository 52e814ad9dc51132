"""Suspend an account, and resume it (D-242)."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import ACCOUNT_RESUME, ACCOUNT_SUSPEND
from fatura.observability import log
from fatura.store import leases, suspension
from fatura.store.db import LockTimeoutError
from fatura.usecases.accounts.overview import load
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName, Work, in_transaction
from fatura.views.view import instant

CALLS_POLL_SECONDS = 0.5
_STOPPED = (
    LaneName.GENERATION,
    LaneName.PRICING,
    LaneName.ISSUANCE,
    LaneName.MIRRORING,
    LaneName.PROPAGATION,
    LaneName.PUSH,
    LaneName.PROBE,
    LaneName.TEST_CLOCK,
)


def _ignore(_seconds: float) -> None:
    pass


async def suspend(
    deps: Deps, account_id: UUID, *, asked_by: Actor, on_wait: Callable[[float], None] = _ignore
) -> datetime:
    """Stop an account's billing and calls, and return since when they are stopped.

    Wait until the billing transactions in progress have ended, and then until no reserved call can still be sent. The
    account is suspended before the wait begins, so it stays suspended if this process dies while it waits. If the
    account was already suspended, only wait. If calls can still be sent, `on_wait` is called once with the maximum wait
    in seconds.
    Raises EngineError: `engine.not_found`, and DatabaseUnavailableError, WrongClockError.
    """
    account = await load(deps, account_id)
    while True:
        try:
            since = await in_transaction(deps, account, _suspend, asked_by)
            async with deps.db.transaction(account_id) as tx:
                await suspension.wait_for_lanes(tx)
        except LockTimeoutError:
            log.warning(
                "account.suspend_waited", account_id=str(account_id), reason="a billing run is in progress"
            )
        else:
            await _wait_for_calls(deps, account_id, on_wait)
            return since


async def _wait_for_calls(deps: Deps, account_id: UUID, on_wait: Callable[[float], None]) -> None:
    """Wait until no reserved call can still create or refund a charge, or cancel one for a merchant.

    Look-ups of refunds continue in a suspended account. Leases that they take during the wait do not prolong the wait.
    """
    until: datetime | None = None
    while True:
        async with deps.db.transaction(account_id, quick=True) as tx:
            # use the database's clock: by this clock, a call ends before its lease, even if a host's clock is wrong
            now = await tx.clock_time()
            ends_at = await suspension.last_call_ends_at(tx, now=now, until=until or leases.horizon(now))
        if ends_at is None:
            return
        if until is None:
            until = ends_at
            on_wait((ends_at - now).total_seconds())
        await asyncio.sleep(CALLS_POLL_SECONDS)


async def _suspend(work: Work, asked_by: Actor) -> datetime:
    since = await suspension.lock(work.tx)
    if since is not None:
        return since
    now = work.deps.clock()
    await suspension.suspend(work.tx, real_now=now)
    state = {"suspendedAt": instant(now)}
    work.audit_for(
        Origin(asked_by),
        ACCOUNT_SUSPEND,
        resource_id=work.account.account_id,
        before={"suspendedAt": None},
        after=state,
    )
    return now


async def resume(deps: Deps, account_id: UUID, *, asked_by: Actor) -> bool:
    """Let a suspended account continue where it stopped. Return False if it was not suspended.

    Raises EngineError: `engine.not_found`, and DATABASE_FAILURES.
    """
    return await in_transaction(deps, await load(deps, account_id), _resume, asked_by)


async def _resume(work: Work, asked_by: Actor) -> bool:
    since = await suspension.lock(work.tx)
    if since is None:
        return False
    await suspension.resume(work.tx, now=work.now)
    state = {"suspendedAt": instant(since)}
    work.audit_for(
        Origin(asked_by),
        ACCOUNT_RESUME,
        resource_id=work.account.account_id,
        before=state,
        after={"suspendedAt": None},
    )
    work.notify(*_STOPPED)
    return True
