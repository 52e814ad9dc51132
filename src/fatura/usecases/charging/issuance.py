"""Issue invoices in three beats: reserve, call, record (D-33). What answers mean: `usecases.charging.outcomes`."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charging import (
    EMPTY_LOOKUP_GAP,
    LOOKUP_COUNTS_AFTER,
    AttemptState,
    ChargeAttempt,
    charge_due_date,
)
from fatura.domain.invoice import InvoiceItem
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    Charge,
    Gateway,
    Line,
)
from fatura.observability import log
from fatura.store.billing import invoices
from fatura.store.charging import charges, connections
from fatura.store.charging.charges import ClaimedInvoice, NewAttempt
from fatura.store.restore import frozen_accounts
from fatura.usecases.charging import gateway_calls, gateway_connections, late_charge_checks, outcomes
from fatura.usecases.charging.delays import Tried
from fatura.usecases.charging.delays import wait_for_connection as _wait
from fatura.usecases.charging.gateway_calls import Job
from fatura.usecases.charging.outcomes import Answer
from fatura.usecases.deps import Deps
from fatura.usecases.operations.health import MAX_CLOCK_SKEW
from fatura.usecases.transaction import Work, in_transaction

GATHER_SECONDS = 0.02
"""How long the first answer waits for others, to be recorded together."""
LEASE = timedelta(seconds=60)
"""How long a worker owns an invoice it is issuing, in real time."""
assert LEASE.total_seconds() > gateway_calls.SEND_WITHIN_SECONDS + CALL_TIMEOUT_SECONDS
assert (
    timedelta(seconds=gateway_calls.SEND_WITHIN_SECONDS + CALL_TIMEOUT_SECONDS) + 2 * MAX_CLOCK_SKEW
    < LOOKUP_COUNTS_AFTER + EMPTY_LOOKUP_GAP
), (
    "no charge is believed absent while its call may be open, though one host's clock is slow and another's fast"
)


async def issue(deps: Deps, account: Account, *, limit: int) -> int:
    """Create the charges of up to `limit` due invoices, all at once; return how many were worked on (D-33, D-34)."""

    async def reserve_some(work: Work) -> tuple[int, Sequence[Job]]:
        return await _reserve(work, limit=limit)

    count, jobs = await in_transaction(deps, account, reserve_some)
    await carry_out(deps, account, jobs)
    return count


async def carry_out(deps: Deps, account: Account, jobs: Sequence[Job]) -> None:
    """Call the gateways for all reserved jobs at once, and record the answers as they come, several together."""
    running = {asyncio.create_task(_call(deps, account, job)): job for job in jobs}
    try:
        while running:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(running, timeout=GATHER_SECONDS)
            ended = [each for each in running if each.done()]
            answered = [(running.pop(each), each) for each in ended]
            for job, failed in answered:
                if failed.exception() is not None:
                    _tell_failure(job, failed.exception())
            await _record(
                deps, account, [(job, each.result()) for job, each in answered if each.exception() is None]
            )
    finally:
        for each in running:
            each.cancel()


def _tell_failure(job: Job, failure: BaseException | None) -> None:
    """Log what stops no other job; its lease ends, and the charge is looked up."""
    log.error("issuance.failed", invoice_id=str(job.claimed.invoice_id), exc_info=failure)


async def _reserve(work: Work, *, limit: int) -> tuple[int, Sequence[Job]]:
    """Lease due invoices and commit to each attempt before its first byte leaves; none while a restore is swept."""
    if not await frozen_accounts.may_charge(work.tx):
        return 0, []
    real_now = work.deps.clock()
    ids = await charges.claim(
        work.tx,
        InvoiceStatus.READY,
        now=work.now,
        real_now=real_now,
        lease_until=real_now + LEASE,
        limit=limit,
    )
    return len(ids), await commit_to(work, ids) if ids else []


async def commit_to(work: Work, ids: Sequence[UUID]) -> Sequence[Job]:
    """Return the jobs of leased `ready` invoices, each with its attempt stored; who waits for a connection has none."""
    known = await charges.last_attempts(work.tx, ids)
    items = await invoices.items_of(work.tx, ids)
    stored = {each.connection.connection_id: each for each in await connections.find_all(work.tx)}
    jobs: list[Job] = []
    for claimed in await charges.claimed(work.tx, ids):
        connection = stored[claimed.connection_id]
        gateway = gateway_connections.opened(work, connection)
        if not connection.connection.active:
            await _wait(work, claimed, "inactive", message="The gateway connection is inactive.")
        elif gateway is None:
            await _wait(
                work, claimed, "unreadable", message="The gateway connection's credentials do not open."
            )
        else:
            jobs.append(_job(work, claimed, gateway, known=known.get(claimed.invoice_id), items=items))
    sending = [job.attempt for job in jobs if not job.look_up]
    await charges.send(work.tx, sending, sent_at=work.now, real_now=work.deps.clock())
    return jobs


def _job(
    work: Work,
    claimed: ClaimedInvoice,
    gateway: Gateway,
    *,
    known: ChargeAttempt | None,
    items: Mapping[UUID, Sequence[InvoiceItem]],
) -> Job:
    look_up, repeats_sent_at, sent_at, found = False, None, work.now, known.known_charge_ids if known else ()
    number, due_date = 1, charge_due_date(claimed.due_date, today=work.today)
    if known is not None and known.state is AttemptState.SENDING:
        number, due_date = known.attempt, known.charge_due_date
        look_up = bool(found) or not _may_replay(work, gateway, known)
        if look_up:
            sent_at = known.sent_at
        else:
            repeats_sent_at = known.sent_at
    elif known is not None:
        number = known.attempt if known.state is AttemptState.ABSENT else known.attempt + 1
    return Job(
        claimed=claimed,
        attempt=NewAttempt(claimed.invoice_id, number, claimed.connection_id, claimed.total_cents, due_date),
        sent_at=sent_at,
        lines=tuple(
            Line(item.description or item.product_name, item.amount_cents)
            for item in items[claimed.invoice_id]
            if item.amount_cents is not None
        ),
        gateway=gateway,
        look_up=look_up,
        asked_at=work.now,
        reserved_at=work.deps.clock(),
        send_before=time.monotonic() + gateway_calls.SEND_WITHIN_SECONDS,
        repeats_sent_at=repeats_sent_at,
        known_charge_ids=found,
    )


def _may_replay(work: Work, gateway: Gateway, known: ChargeAttempt) -> bool:
    """Say whether the very same call may be sent again: the gateway knows it by its key or its natural id (D-33)."""
    capabilities = gateway.capabilities()
    if capabilities.idempotency == "natural_id":
        return True
    if capabilities.idempotency != "key" or capabilities.idempotency_ttl is None:
        return False
    return work.deps.clock() - known.first_sent_at < capabilities.idempotency_ttl - timedelta(hours=1)


async def _call(deps: Deps, account: Account, job: Job) -> Answer:
    return await outcomes.caught(
        gateway_calls.look_up(job) if job.look_up else gateway_calls.send(deps, account, job)
    )


async def _record(deps: Deps, account: Account, answered: Sequence[tuple[Job, Answer]]) -> None:
    """Record answers in one transaction, or, when that fails, each in its own: recording one twice changes nothing."""
    if not answered:
        return

    async def record(work: Work) -> Sequence[Charge | None]:
        tried = [(_tried(job), answer) for job, answer in answered]
        seconds = await outcomes.record_all(work, tried)
        for second in filter(None, seconds):
            await late_charge_checks.plan_first(work, second)
        return seconds

    try:
        seconds = await in_transaction(deps, account, record)
    except Exception as failure:  # noqa: BLE001 - told with the answer that it is of
        if len(answered) > 1:
            await asyncio.gather(*(_record(deps, account, [each]) for each in answered))
        else:
            _tell_failure(answered[0][0], failure)
        return
    await asyncio.gather(
        *(
            late_charge_checks.cancel(job.gateway, second)
            for (job, _), second in zip(answered, seconds, strict=True)
            if second is not None
        )
    )


def _tried(job: Job) -> Tried:
    return Tried(
        job.claimed,
        job.attempt,
        job.sent_at,
        asked_at=job.asked_at,
        looked_up=job.look_up,
        repeats_sent_at=job.repeats_sent_at,
        known_charge_ids=job.known_charge_ids,
    )
