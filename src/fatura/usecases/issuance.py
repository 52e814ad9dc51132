"""Issue invoices in three beats: reserve, call, record (D-33). What answers mean: `usecases.issue_outcomes`."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
    ChargeRequest,
    ChargeState,
    Gateway,
    Line,
    Payer,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
)
from fatura.observability import log
from fatura.store import charges, connections, customers, invoices, recovery
from fatura.store.charges import ClaimedInvoice, NewAttempt
from fatura.store.vault import KeyRingError
from fatura.usecases import gateways, issue_outcomes, second_looks
from fatura.usecases.deps import Deps
from fatura.usecases.health import MAX_CLOCK_SKEW
from fatura.usecases.issue_outcomes import wait_for_connection as _wait
from fatura.usecases.work import Work, perform

LEASE = timedelta(seconds=60)
"""How long a worker owns an invoice it is issuing, in real time."""
SEND_WITHIN_SECONDS = 30
"""A worker that was frozen sends nothing later than this after reserving: lease > this + CALL_TIMEOUT_SECONDS."""
assert LEASE.total_seconds() > SEND_WITHIN_SECONDS + CALL_TIMEOUT_SECONDS
assert (
    timedelta(seconds=SEND_WITHIN_SECONDS + CALL_TIMEOUT_SECONDS) + 2 * MAX_CLOCK_SKEW
    < LOOKUP_COUNTS_AFTER + EMPTY_LOOKUP_GAP
), (
    "no charge is believed absent while its call may be open, though one host's clock is slow and another's fast"
)


@dataclass(frozen=True, slots=True)
class Job:
    """One reserved invoice: to be sent, or (`look_up`) to be asked after since an earlier outcome is unknown.

    `repeats`: the same call is sent again, since the gateway would know it; its first sending may have made the charge.
    """

    claimed: ClaimedInvoice
    attempt: NewAttempt
    sent_at: datetime
    lines: tuple[Line, ...]
    gateway: Gateway
    look_up: bool
    asked_at: datetime
    reserved_at: datetime
    send_before: float
    repeats: bool = False
    known_charge_ids: Sequence[str] = ()


async def issue(deps: Deps, account: Account, *, limit: int) -> int:
    """Create the charges of up to `limit` due invoices, all at once; return how many were worked on (D-33, D-34)."""

    async def reserve_some(work: Work) -> tuple[int, Sequence[Job]]:
        return await _reserve(work, limit=limit)

    count, jobs = await perform(deps, account, reserve_some)
    await carry_out(deps, account, jobs)
    return count


async def carry_out(deps: Deps, account: Account, jobs: Sequence[Job]) -> None:
    """Call the gateways for all reserved jobs at once, and record each answer as it comes."""
    ended = await asyncio.gather(*(_carry_out(deps, account, job) for job in jobs), return_exceptions=True)
    for job, failure in zip(jobs, ended, strict=True):
        if failure is not None:  # it stops no other job; its lease ends, and the charge is looked up
            log.error("issuance.failed", invoice_id=str(job.claimed.invoice_id), exc_info=failure)


async def _reserve(work: Work, *, limit: int) -> tuple[int, Sequence[Job]]:
    """Lease due invoices and commit to each attempt before its first byte leaves; none while a restore is swept."""
    if not await recovery.may_charge(work.tx):
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
        gateway = gateways.opened(work, connection)
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
    look_up, repeats, sent_at, found = False, False, work.now, known.known_charge_ids if known else ()
    number, due_date = 1, charge_due_date(claimed.due_date, today=work.today)
    if known is not None and known.state is AttemptState.SENDING:
        number, due_date = known.attempt, known.charge_due_date
        repeats = not found and _may_replay(work, gateway, known)
        look_up = not repeats
        sent_at = known.sent_at if look_up else work.now
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
        send_before=time.monotonic() + SEND_WITHIN_SECONDS,
        repeats=repeats,
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


async def _carry_out(deps: Deps, account: Account, job: Job) -> None:
    """Call the gateway with no transaction open, then record what it said in one."""
    answer = await issue_outcomes.caught(_look_up(job) if job.look_up else _send(deps, account, job))

    async def record(work: Work) -> Charge | None:
        tried = issue_outcomes.Tried(
            job.claimed,
            job.attempt,
            job.sent_at,
            asked_at=job.asked_at,
            looked_up=job.look_up,
            repeated=job.repeats,
            known_charge_ids=job.known_charge_ids,
        )
        second = await issue_outcomes.record(work, tried, answer)
        if second is not None:
            await second_looks.plan_first(work, second)
        return second

    second = await perform(deps, account, record)
    if second is not None:
        await second_looks.cancel(job.gateway, second)


async def _look_up(job: Job) -> Charge | None:
    if job.known_charge_ids:
        return await _known_charge(job)
    if job.gateway.capabilities().idempotency == "none":
        raise issue_outcomes.CannotBeKnownError
    async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
        return await job.gateway.find_charge(job.attempt.invoice_id, job.attempt.attempt)


async def _known_charge(job: Job) -> Charge:
    """Return the charge that a restore found for the attempt; of several the one that is not canceled (D-123).

    Raises SeveralChargesError.
    """
    async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
        found = [await job.gateway.get_charge(charge_id) for charge_id in job.known_charge_ids]
    live = [charge for charge in found if charge.state is not ChargeState.CANCELED]
    if len(live) > 1:
        raise issue_outcomes.SeveralChargesError(", ".join(charge.charge_id for charge in live))
    return (live or found)[0]


async def _send(deps: Deps, account: Account, job: Job) -> Charge:
    request = _request(deps, account, job)
    stood_still = deps.clock() - job.reserved_at > timedelta(seconds=SEND_WITHIN_SECONDS)
    if stood_still or time.monotonic() > job.send_before:  # either clock may have stopped with the machine
        message = "the worker stood still for so long that its lease may be another's; nothing was sent"
        raise TransientError(message)
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            return await _create(job, request)
    except TimeoutError as error:
        message = f"no answer within {CALL_TIMEOUT_SECONDS} s"
        raise UnknownOutcomeError(message) from error


async def _create(job: Job, request: ChargeRequest) -> Charge:
    """Create the charge; a repeat may be refused just because the first sending made it, so that one is looked for."""
    try:
        return await job.gateway.create_charge(request)
    except PermanentError:
        made = await job.gateway.find_charge(request.invoice_id, request.attempt) if job.repeats else None
        if made is None:
            raise
        return made


def _request(deps: Deps, account: Account, job: Job) -> ChargeRequest:
    claimed = job.claimed
    document = _document(deps, account, claimed)
    return ChargeRequest(
        invoice_id=claimed.invoice_id,
        attempt=job.attempt.attempt,
        amount_cents=job.attempt.amount_cents,
        currency=account.currency,
        method=claimed.payment_method,
        installments=claimed.installments,
        due_date=job.attempt.charge_due_date,
        lines=job.lines,
        payer=Payer(
            claimed.customer_id,
            claimed.customer_name,
            claimed.customer_email,
            document,
        ),
    )


def _document(deps: Deps, account: Account, claimed: ClaimedInvoice) -> str | None:
    """Return the payer's tax document; one that does not open holds its invoice up until it is mended (D-34)."""
    if claimed.document_sealed is None:
        return None
    try:
        return deps.vault.open(
            claimed.document_sealed,
            place=customers.DOCUMENT_PLACE,
            account_id=account.account_id,
            row_id=str(claimed.customer_id),
        ).decode()
    except KeyRingError as error:
        log.error("issuance.unreadable", invoice_id=str(claimed.invoice_id), error=str(error))
        message = "the customer's document does not open; send it again by PATCH /v1/customers/{customerId}"
        raise TransientError(message) from None
