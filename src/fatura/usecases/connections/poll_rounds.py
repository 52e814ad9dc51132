"""Poll all unpaid charges of a connection in a round (D-190).

A webhook that names no charge only requests a round, so that many webhooks cost little. The lane `reconciliation` runs
the round in batches. All progress is stored, so a round continues after a process died.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.observability import log
from fatura.store.charging import poll_rounds
from fatura.store.charging.poll_rounds import PollRound
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.transaction import LaneName, Work, in_transaction

PAUSE = timedelta(minutes=1)
"""Minimum time between the beginnings of two rounds that webhooks request."""
BATCH = 1000
"""Maximum number of invoices that one transaction makes due."""


async def request(work: Work, connection_id: UUID, *, pause: timedelta = PAUSE) -> None:
    """Request a round that begins after this transaction, and at least `pause` after the newest round began.

    The requested round also waits until the connection's budget has allowed all polls of the newest round. If a round
    is running, the requested round follows it. The caller's transaction must not have locked invoices yet: `advance`
    locks the round before the invoices, so the opposite order could cause a deadlock.
    """
    # This waits until a running batch commits. If a round is running, its polls may have read charges before the change
    # that the webhook reports, so another round follows.
    found = await poll_rounds.lock(work.tx, connection_id)
    if found.done_to is not None:
        changed = replace(found, again=True)
    else:
        next_at = work.now if found.began_at is None else _next_at(found, now=work.now, at_least=pause)
        changed = replace(found, next_step_at=min(found.next_step_at or next_at, next_at))
    if changed != found:
        await poll_rounds.save(work.tx, changed)
        work.notify(LaneName.RECONCILIATION)


async def advance(deps: Deps, account: Account) -> bool:
    """Run the next batch of a round that is due. Return whether the round has further batches."""
    return await in_transaction(deps, account, _advance)


async def _advance(work: Work) -> bool:
    found = await poll_rounds.claim(work.tx, now=work.now)
    if found is None:
        return False
    # if the round was put off, there is no result, and `all` returns True: the round has further batches
    return all(await each_alone_if_one_fails(work, [found], _run_batches, put_off=_put_off))


async def _put_off(work: Work, found: PollRound) -> None:
    log.exception("round.put_off", connection_id=str(found.connection_id))
    await poll_rounds.save(work.tx, replace(found, next_step_at=work.now + PUT_OFF_BY))


async def _run_batches(work: Work, claimed: Sequence[PollRound]) -> Sequence[bool]:
    return [await _run_batch(work, each) for each in claimed]


async def _run_batch(work: Work, found: PollRound) -> bool:
    if found.done_to is None:
        found = replace(found, began_at=work.now, made_due=0)
    invoice_ids = await poll_rounds.unpaid(work.tx, after=found.done_to, limit=BATCH)
    make_due = partial(_make_due, connection_id=found.connection_id)
    made_due = await each_alone_if_one_fails(work, invoice_ids, make_due, put_off=_log_skipped)
    found = replace(found, made_due=found.made_due + len(made_due))
    is_last = len(invoice_ids) < BATCH
    await poll_rounds.save(
        work.tx, _ended(found, now=work.now) if is_last else _continued(found, invoice_ids[-1], now=work.now)
    )
    return not is_last


async def _make_due(work: Work, invoice_ids: Sequence[UUID], *, connection_id: UUID) -> Sequence[UUID]:
    return await poll_rounds.make_due(
        work.tx, connection_id, invoice_ids, now=work.now, real_now=work.deps.clock()
    )


async def _log_skipped(_work: Work, invoice_id: UUID) -> None:
    """Log that a round skips an invoice. The invoice is still polled on schedule."""
    log.exception("round.invoice_skipped", invoice_id=str(invoice_id))


def _continued(running: PollRound, done_to: UUID, *, now: datetime) -> PollRound:
    """Return the round with its next batch due now, behind the account's other rounds that are due already."""
    return replace(running, done_to=done_to, next_step_at=now)


def _ended(ran: PollRound, *, now: datetime) -> PollRound:
    next_step_at = _next_at(ran, now=now, at_least=PAUSE) if ran.again else None
    return replace(ran, next_step_at=next_step_at, done_to=None, again=False)


def _next_at(newest: PollRound, *, now: datetime, at_least: timedelta) -> datetime:
    """Return when the next round may begin: at least `at_least` after the newest round began.

    The pause is also long enough for the connection's budget to allow all polls of the newest round. Otherwise, each
    round could poll the same charges again before other charges are polled.
    """
    assert newest.began_at is not None, "a round has begun"
    pause = at_least
    if newest.polls_per_minute is not None:
        pause = max(pause, newest.made_due * timedelta(minutes=1) / newest.polls_per_minute)
    began_at = min(newest.began_at, now)  # the stored instant is in the future if the clock was ahead
    return max(now, began_at + pause)
