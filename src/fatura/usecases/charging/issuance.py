"""Issue invoices: reserve a charge attempt for each, call the gateways, record the answers (D-33, D-34).

Workers call `issue`; the retry-issuance route calls `retry`. `outcomes` handles the answers.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
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
from fatura.domain.errors import INVOICE_NOT_READY, EngineError, account_recovering, require
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, Gateway, Line
from fatura.observability import log
from fatura.store.billing import invoices as stored_invoices
from fatura.store.charging import attempts, claims, issuance_state
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.restore import frozen_accounts
from fatura.usecases.billing import invoices as shown_invoices
from fatura.usecases.charging import gateway_calls, gateway_connections, outcomes, second_charges
from fatura.usecases.charging.gateway_calls import AnsweredCall, CallKind, GatewayCall
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, is_repeat
from fatura.usecases.operations import health
from fatura.usecases.operations.health import MAX_CLOCK_SKEW
from fatura.usecases.transaction import LaneName, Work, in_transaction
from fatura.views.invoices import InvoiceView

GATHER_SECONDS = 0.02
"""Time to wait for more answers after the first one, so that they are recorded in one transaction."""
LEASE = timedelta(seconds=60)
"""How long a worker leases an invoice to issue it, in real time."""
assert LEASE.total_seconds() > gateway_calls.SEND_WITHIN_SECONDS + CALL_TIMEOUT_SECONDS
assert (
    timedelta(seconds=gateway_calls.SEND_WITHIN_SECONDS + CALL_TIMEOUT_SECONDS) + 2 * MAX_CLOCK_SKEW
    < LOOKUP_COUNTS_AFTER + EMPTY_LOOKUP_GAP
), (
    "a charge is believed absent only after its call has ended, even if one host's clock is slow and another's fast"
)
NOT_READY_REASONS = {
    InvoiceStatus.DRAFT: "waits for its prices and is issued automatically when they arrive",
    InvoiceStatus.AWAITING_VALUE: "waits for a value; retry pricing or enter the value by hand",
    InvoiceStatus.ISSUED: "is issued already",
    InvoiceStatus.PAID: "is paid already",
    InvoiceStatus.OVERDUE: "is issued already, and overdue",
    InvoiceStatus.CANCELED: "is canceled and will not be issued",
}


async def issue(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` invoices due for issuing, create their charges concurrently, and return their number."""
    count, calls = await in_transaction(deps, account, _reserve_due, limit=limit)
    await call_and_record(deps, account, calls)
    return count


async def retry(
    deps: Deps, account: Account, request: IdempotentRequest | None, invoice_id: UUID
) -> InvoiceView:
    """Issue a `ready` invoice now, and return it after its gateway answered or timed out (D-34, D-113).

    After a failed or parked attempt, a new attempt is sent. An attempt with an unknown outcome is repeated or looked
    up. While a worker is issuing the invoice, nothing is sent.
    Raises EngineError: `engine.not_found`, `engine.invoice_not_ready`, `engine.account_recovering`.
    """
    may_lease = await health.clock_is_trusted(deps)
    calls = await in_transaction(deps, account, _reserve_one, request, invoice_id, may_lease=may_lease)
    await call_and_record(deps, account, calls)
    return await in_transaction(deps, account, shown_invoices.read, invoice_id)


async def call_and_record(deps: Deps, account: Account, calls: Sequence[GatewayCall]) -> None:
    """Make all calls concurrently; record the answers that arrive together in one transaction."""
    running = {asyncio.create_task(gateway_calls.make(deps, account, call)): call for call in calls}
    try:
        while running:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(running, timeout=GATHER_SECONDS)
            answered: list[AnsweredCall] = []
            for task in [each for each in running if each.done()]:
                call = running.pop(task)
                if (failure := task.exception()) is None:
                    answered.append((call, task.result()))
                else:
                    _log_failure(call, failure)
            await _record(deps, account, answered)
    finally:
        for task in running:
            task.cancel()


async def _reserve_due(work: Work, *, limit: int) -> tuple[int, Sequence[GatewayCall]]:
    """Lease invoices due for issuing and store their attempts.

    While the account is frozen after a restore, no invoice is leased (D-123).
    """
    if not await frozen_accounts.may_charge(work.tx):
        return 0, []
    real_now = work.deps.clock()
    invoice_ids = await claims.claim(
        work.tx,
        InvoiceStatus.READY,
        now=work.now,
        real_now=real_now,
        lease_until=real_now + LEASE,
        limit=limit,
    )
    return len(invoice_ids), await _reserve(work, invoice_ids) if invoice_ids else []


async def _reserve_one(
    work: Work, request: IdempotentRequest | None, invoice_id: UUID, *, may_lease: bool
) -> Sequence[GatewayCall]:
    """Lease one invoice and store its attempt.

    `may_lease` is false when this host's clock is wrong. The invoice is then only made due, so that a worker on
    another host issues it (D-5).
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    if state.status is not InvoiceStatus.READY:
        raise EngineError(INVOICE_NOT_READY, f"The invoice {NOT_READY_REASONS[state.status]}.")
    if not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    is_repeated = await is_repeat(work, request)
    await work.refresh()
    real_now = work.deps.clock()
    if state.is_leased(real_now):
        return []
    if state.attempt is AttemptState.PARKED:
        if is_repeated:
            return []  # the first request may have reopened and sent it; only a new request reopens it again
        await attempts.reopen_parked(work.tx, invoice_id)
    lease_until = real_now + LEASE if may_lease else None
    await issuance_state.make_due(work.tx, invoice_id, now=work.now, lease_until=lease_until)
    if may_lease:
        return await _reserve(work, [invoice_id])
    work.notify(LaneName.ISSUANCE)
    return []


async def _reserve(work: Work, invoice_ids: Sequence[UUID]) -> Sequence[GatewayCall]:
    """Decide which call each leased invoice needs, and store the attempts that will be sent.

    If an invoice's connection cannot be used, no call is made for it.
    """
    invoices = await claims.read(work.tx, invoice_ids)
    newest = await attempts.newest(work.tx, invoice_ids)
    items = await stored_invoices.items_of(work.tx, invoice_ids)
    gateways = await gateway_connections.open_gateways(work, {each.connection_id for each in invoices})
    calls: list[GatewayCall] = []
    for invoice in invoices:
        connection, gateway = gateways[invoice.connection_id]
        if not connection.active:
            message = "The gateway connection is inactive."
            await outcomes.wait_for_connection(work, invoice, "inactive", message=message)
        elif gateway is None:
            message = "The gateway connection's credentials cannot be decrypted."
            await outcomes.wait_for_connection(work, invoice, "unreadable", message=message)
        else:
            lines = tuple(
                Line(item.description or item.product_name, item.amount_cents)
                for item in items[invoice.invoice_id]
                if item.amount_cents is not None
            )
            calls.append(_decide_call(work, invoice, newest.get(invoice.invoice_id), gateway, lines=lines))
    sending = [call.attempt for call in calls if call.kind is not CallKind.LOOK_UP]
    await attempts.save_sending(work.tx, sending)
    return calls


def _decide_call(
    work: Work,
    invoice: ClaimedInvoice,
    newest: ChargeAttempt | None,
    gateway: Gateway,
    *,
    lines: tuple[Line, ...],
) -> GatewayCall:
    """Decide which call to make from the state of the invoice's newest attempt (D-33).

    | newest attempt                                         | call              |
    | none                                                   | SEND attempt 1    |
    | absent                                                 | SEND it again     |
    | failed                                                 | SEND the next one |
    | sending, no known charge, the gateway deduplicates it  | REPEAT it         |
    | sending, otherwise                                     | LOOK_UP           |
    """
    real_now = work.deps.clock()
    kind, earlier_sent_at = CallKind.SEND, None
    if newest is None:
        attempt = _new_attempt(work, invoice, number=1)
    elif newest.state is AttemptState.ABSENT:
        due_date = charge_due_date(invoice.due_date, today=work.today)
        attempt = replace(newest, state=AttemptState.SENDING, sent_at=work.now, charge_due_date=due_date)
    elif newest.state is not AttemptState.SENDING:
        attempt = _new_attempt(work, invoice, number=newest.number + 1)
    elif newest.known_charge_ids or not _may_repeat(gateway, newest, real_now=real_now):
        kind, attempt = CallKind.LOOK_UP, newest
    else:
        kind, earlier_sent_at = CallKind.REPEAT, newest.sent_at
        attempt = replace(newest, sent_at=work.now)
    return GatewayCall(
        kind=kind,
        invoice=invoice,
        attempt=attempt,
        gateway=gateway,
        reserved_at=work.now,
        reserved_at_real=real_now,
        send_before=time.monotonic() + gateway_calls.SEND_WITHIN_SECONDS,
        lines=lines,
        earlier_sent_at=earlier_sent_at,
    )


def _new_attempt(work: Work, invoice: ClaimedInvoice, *, number: int) -> ChargeAttempt:
    return ChargeAttempt(
        invoice_id=invoice.invoice_id,
        number=number,
        connection_id=invoice.connection_id,
        state=AttemptState.SENDING,
        amount_cents=invoice.total_cents,
        charge_due_date=charge_due_date(invoice.due_date, today=work.today),
        first_sent_at=work.deps.clock(),
        sent_at=work.now,
    )


def _may_repeat(gateway: Gateway, attempt: ChargeAttempt, *, real_now: datetime) -> bool:
    """Return whether the gateway still deduplicates the attempt's request, by idempotency key or natural id (D-33)."""
    capabilities = gateway.capabilities()
    if capabilities.idempotency == "natural_id":
        return True
    if capabilities.idempotency != "key" or capabilities.idempotency_ttl is None:
        return False
    return real_now - attempt.first_sent_at < capabilities.idempotency_ttl - timedelta(hours=1)


async def _record(deps: Deps, account: Account, answered: Sequence[AnsweredCall]) -> None:
    """Record answers in one transaction. If that fails, record each in a transaction of its own. Safe to repeat."""
    if not answered:
        return
    try:
        seconds = await in_transaction(deps, account, _record_answers, answered)
    except Exception as failure:  # noqa: BLE001 - each answer is recorded alone; a failure of one is logged
        if len(answered) > 1:
            await asyncio.gather(*(_record(deps, account, [each]) for each in answered))
        else:
            _log_failure(answered[0][0], failure)
        return
    await asyncio.gather(*(second_charges.cancel(gateway, second) for gateway, second in seconds))


async def _record_answers(work: Work, answered: Sequence[AnsweredCall]) -> Sequence[tuple[Gateway, Charge]]:
    """Record answers; return the second charges to cancel (see `second_charges`), each with its gateway."""
    seconds = await outcomes.record_all(work, answered)
    found = [
        (call.gateway, second)
        for (call, _), second in zip(answered, seconds, strict=True)
        if second is not None
    ]
    for _, second in found:
        await second_charges.plan_checks(work, second.invoice_id, second.attempt)
    return found


def _log_failure(call: GatewayCall, failure: BaseException) -> None:
    """Log the failure of one call. After the invoice's lease expires, a worker continues with the stored attempt."""
    log.error("charge.attempt_failed", invoice_id=str(call.invoice.invoice_id), exc_info=failure)
