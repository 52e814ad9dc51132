"""Issue invoices: reserve a charge for each, call the gateways, record the answers (D-33, D-34).

Workers call `issue`; the retry-issuance route calls `retry`. `outcomes` handles the answers.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import IN_DOUBT, ChargeStage, InvoiceCharge
from fatura.domain.charging import (
    BEHIND_DELAY,
    EMPTY_LOOKUP_GAP,
    ISSUES_APART,
    LOOKUP_COUNTS_AFTER,
)
from fatura.domain.connection import Connection, check_minimums
from fatura.domain.errors import INVOICE_NOT_READY, EngineError, account_recovering, require
from fatura.domain.invoice import InvoiceItem
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.payments import open_cents
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, Gateway, Line, TransientError
from fatura.observability import log
from fatura.store.billing import invoices as stored_invoices
from fatura.store.billing import payment_entries
from fatura.store.charging import charges, claims, issuance_state, refund_requests, spacing, waiting
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.restore import frozen_accounts
from fatura.store.vault import KeyRingError
from fatura.usecases.billing import invoices as shown_invoices
from fatura.usecases.charging import charge_requests, gateway_calls, next_charge, outcomes, retries
from fatura.usecases.charging.gateway_calls import AnsweredCall, CallKind, GatewayCall
from fatura.usecases.clock_skew import MAX_CLOCK_SKEW
from fatura.usecases.connections import connection_health, gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, is_repeat
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import gateway_payments, second_charges
from fatura.usecases.transaction import Work, in_snapshot, in_transaction
from fatura.views.invoices import InvoiceView

REMAINDER = "Remaining amount"
"""Description of the single line of a charge for an invoice that is already paid in part (D-67)."""
GATHER_SECONDS = 0.02
"""Time to wait for more answers after the first answer, so that one transaction records all of them."""
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
    """Claim up to `limit` invoices due for issuing, and make their gateway calls concurrently.

    Return how many invoices were claimed.
    """
    limit = deps.answering.limit(account.account_id, limit)
    count, calls = await in_transaction(deps, account, _reserve_due, limit=limit)
    await call_and_record(deps, account, calls)
    return count


async def retry(
    deps: Deps, account: Account, request: IdempotentRequest | None, invoice_id: UUID
) -> InvoiceView:
    """Issue a `ready` invoice now, and return it after its gateway answered or timed out (D-34, D-113).

    If the newest charge failed or is parked, a new charge is sent. If `fatura restored` found charges with the
    reference of a parked charge, these charges are looked up instead. If the outcome of the newest request is unknown,
    the request is repeated or its charge is looked up. While a worker leases the invoice, nothing is sent.
    Raises EngineError: `engine.idempotency_key_reused`, `engine.not_found`, `engine.invoice_not_ready`,
    `engine.account_recovering`, `engine.rate_limited`, `engine.unavailable`.
    """
    with deps.gateway_requests.places(account.account_id) as places:
        calls = await in_transaction(deps, account, _reserve_one, request, invoice_id, places)
        await call_and_record(deps, account, calls)
    return await in_snapshot(deps, account, shown_invoices.read, invoice_id)


async def call_and_record(deps: Deps, account: Account, calls: Sequence[GatewayCall]) -> None:
    """Make all calls concurrently.

    One transaction records all answers that arrive within GATHER_SECONDS of the first.
    """
    running = {asyncio.create_task(gateway_calls.make(deps, call)): call for call in calls}
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
            await connection_health.record(deps, account, [call.gateway for call, _ in answered])
    finally:
        for task in running:
            task.cancel()


async def _reserve_due(work: Work, *, limit: int) -> tuple[int, Sequence[GatewayCall]]:
    """Lease invoices due for issuing and store their charges.

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
    if not invoice_ids:
        return 0, []
    sendable = await _spaced(work, invoice_ids)
    return len(invoice_ids), await _reserve(work, sendable) if sendable else []


async def _spaced(work: Work, invoice_ids: Sequence[UUID]) -> Sequence[UUID]:
    """Return the invoices that may be issued now, and put the others off (D-57).

    If several invoices of a subscription wait, for example after a hold, the earliest cycle is issued first. The others
    follow at least 24 hours apart. While the earliest one cannot be sent, the others look again each hour: a whole day
    could end each time at an instant at which the earliest one is due too.
    """
    await spacing.lock_subscriptions(work.tx, invoice_ids)
    until: dict[UUID, datetime] = {}
    for each in await spacing.uncharged(work.tx, invoice_ids, now=work.now, since=work.now - ISSUES_APART):
        if each.others_sent_at is not None:
            until[each.invoice_id] = each.others_sent_at + ISSUES_APART
        elif each.is_behind:
            until[each.invoice_id] = work.now + BEHIND_DELAY
    await spacing.put_off(work.tx, list(until), until=list(until.values()))
    return [invoice_id for invoice_id in invoice_ids if invoice_id not in until]


async def reserve_probe(work: Work, connection_id: UUID) -> Sequence[GatewayCall]:
    """Lease one invoice that waits for a failing connection, and store its charge (D-55).

    If D-57 puts the invoice off, return no call.
    """
    if not await frozen_accounts.may_charge(work.tx):
        return []
    real_now = work.deps.clock()
    invoice_ids = await waiting.claim(
        work.tx, connection_id, [InvoiceStatus.READY], real_now=real_now, lease_until=real_now + LEASE
    )
    if not invoice_ids:
        return []
    sendable = await _spaced(work, invoice_ids)
    return await _reserve(work, sendable, is_probe=True) if sendable else []


async def _reserve_one(
    work: Work, request: IdempotentRequest | None, invoice_id: UUID, places: Places
) -> Sequence[GatewayCall]:
    """Lease one invoice and store its charge. If a call is needed, take one of `places` (D-175)."""
    is_repeated = await is_repeat(work, request)
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    if state.status is not InvoiceStatus.READY:
        raise EngineError(INVOICE_NOT_READY, f"The invoice {NOT_READY_REASONS[state.status]}.")
    if not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    await spacing.lock_subscriptions(work.tx, [invoice_id])
    await work.refresh()
    real_now = work.deps.clock()
    if state.is_leased(real_now):
        return []
    stage = None if state.charge is None else state.charge.stage
    if stage not in IN_DOUBT and await refund_requests.has_open(work.tx, invoice_id):
        detail = "A refund of the invoice is pending; wait until it is done or failed."
        raise EngineError(INVOICE_NOT_READY, detail)
    is_parked = stage is ChargeStage.PARKED
    if is_parked and is_repeated:
        return []  # an earlier request with this key has done its work; the charge may have been parked again since
    await retries.pace(work, state)
    if is_parked and state.charge is not None:
        await charges.reopen_parked(work.tx, invoice_id, now=work.now)
        # the person may have overlooked a charge at the gateway
        await second_charges.plan_checks(work, state.charge.charge_id)
    await issuance_state.make_due(work.tx, invoice_id, now=work.now, lease_until=real_now + LEASE)
    calls = await _reserve(work, [invoice_id], is_by_hand=True)
    if calls:
        places.take(1)
    return calls


async def _reserve(
    work: Work, invoice_ids: Sequence[UUID], *, is_probe: bool = False, is_by_hand: bool = False
) -> Sequence[GatewayCall]:
    """Decide which call each leased invoice needs, and store the charges whose requests will be sent.

    An invoice whose total was paid before its values were known becomes paid, without a call (D-50).
    If the connection's credentials cannot be decrypted, no call is made. An inactive connection gets no
    request for a charge, but the engine still looks up a charge whose outcome is unknown. A failing
    connection gets only the calls of a probe, and calls that a person requests (D-55).
    """
    invoices = await claims.read(work.tx, invoice_ids)
    newest = await charges.newest(work.tx, invoice_ids)
    items = await stored_invoices.items_of(work.tx, invoice_ids)
    ledgers = await payment_entries.of_invoices(work.tx, invoice_ids)
    due_cents = {
        each.invoice_id: open_cents(ledgers.get(each.invoice_id, ()), total_cents=each.total_cents)
        for each in invoices
    }
    opened = await gateway_connections.open_gateways(
        work, {each.connection_id for each in invoices}, is_probe=is_probe
    )
    calls: list[GatewayCall] = []
    paid: list[UUID] = []
    for invoice in invoices:
        stored, gateway = opened[invoice.connection_id].stored, opened[invoice.connection_id].gateway
        connection = stored.connection
        charge = newest.get(invoice.invoice_id)
        if not due_cents[invoice.invoice_id]:
            paid.append(invoice.invoice_id)
        elif charge is not None and charge.stage is ChargeStage.PARKED:
            # a late look-up parked the charge while an attempt failed and was rescheduled
            await claims.stop_parked(work.tx, invoice.invoice_id, now=work.now)
        elif gateway is None:
            detail = "The gateway connection's credentials cannot be decrypted."
            await retries.wait_for_connection(work, invoice, "unreadable", detail=detail)
        elif stored.health.is_failing and not (is_probe or is_by_hand):
            await retries.wait_for_recovery(work, invoice, stored.health)
        elif charge is not None and charge.stage in IN_DOUBT:
            calls.append(_ask_again(work, invoice, charge, gateway=gateway, may_send=connection.active))
        elif not connection.active:
            detail = "The gateway connection is inactive."
            await retries.wait_for_connection(work, invoice, "inactive", detail=detail)
        else:
            invoice_id = invoice.invoice_id
            charge = await next_charge.to_send(work, invoice, charge, amount_cents=due_cents[invoice_id])
            calls += await _send(
                work, invoice, charge, connection=connection, gateway=gateway, items=items[invoice_id]
            )
    if paid:
        await gateway_payments.report_new(work, await payment_entries.lock_invoices(work.tx, paid), [])
    sending = [call.charge for call in calls if call.kind is not CallKind.LOOK_UP]
    looked_up = [call.charge.charge_id for call in calls if call.kind is CallKind.LOOK_UP]
    await charges.save_sending(work.tx, sending)
    await charges.mark_unknown(work.tx, looked_up)
    return calls


def _ask_again(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, gateway: ObservedGateway, may_send: bool
) -> GatewayCall:
    """Return the call that finds out whether an earlier request created the charge (D-33).

    Return a REPEAT if `may_send` is true, the gateway still deduplicates the request, `fatura restored` found no charge
    for the request, and the stored request can be decrypted. Otherwise, return a LOOK_UP.
    """
    real_now = work.deps.clock()
    request = None
    if may_send and not charge.known_charge_ids and _may_repeat(gateway, charge, real_now=real_now):
        request = charge_requests.unseal(work, charge)
    if request is None:
        return _call(work, invoice, charge, kind=CallKind.LOOK_UP, gateway=gateway)
    repeated = replace(charge, stage=ChargeStage.UNKNOWN, sent_at=work.now)
    call = _call(work, invoice, repeated, kind=CallKind.REPEAT, gateway=gateway)
    return replace(call, request=request, earlier_sent_at=charge.sent_at)


async def _send(
    work: Work,
    invoice: ClaimedInvoice,
    charge: InvoiceCharge,
    *,
    connection: Connection,
    gateway: ObservedGateway,
    items: Sequence[InvoiceItem],
) -> Sequence[GatewayCall]:
    """Return the call that sends a charge's request.

    Return no call if the request cannot be built, if the charge is below the provider's minimum (D-49), or if the
    invoice has too many charges (D-176). In the last two cases, a person must act.
    """
    try:
        check_minimums(connection, charge.amount_cents, installments=charge.installments)
        await next_charge.check_count(work, charge.invoice_id, charge.number)
    except EngineError as refusal:
        await outcomes.refuse_unsent(work, invoice, charge, refusal=refusal)
        return []
    lines = tuple(
        Line(item.description or item.product_name, item.amount_cents)
        for item in items
        if item.amount_cents is not None
    )
    if charge.amount_cents != invoice.total_cents:
        lines = (Line(REMAINDER, charge.amount_cents),)
    try:
        request = charge_requests.build(work, invoice, charge, lines=lines)
    except KeyRingError as error:
        log.error("charge.document_unreadable", invoice_id=str(invoice.invoice_id), error=str(error))
        message = (
            "the customer's document cannot be decrypted; send it again by PATCH /v1/customers/{customerId}"
        )
        await retries.retry_later(work, invoice, error=TransientError(message))
        return []
    charge = replace(charge, request_sealed=charge_requests.seal(work, charge, request))
    return [replace(_call(work, invoice, charge, kind=CallKind.SEND, gateway=gateway), request=request)]


def _call(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, kind: CallKind, gateway: ObservedGateway
) -> GatewayCall:
    return GatewayCall(
        kind=kind,
        invoice=invoice,
        charge=charge,
        gateway=gateway,
        reserved_at=work.now,
        reserved_at_real=work.deps.clock(),
        send_before=time.monotonic() + gateway_calls.SEND_WITHIN_SECONDS,
    )


def _may_repeat(gateway: Gateway, charge: InvoiceCharge, *, real_now: datetime) -> bool:
    """Return whether the gateway still deduplicates the charge's request, by idempotency key or natural id (D-33)."""
    capabilities = gateway.capabilities()
    if capabilities.idempotency == "natural_id":
        return True
    if capabilities.idempotency != "key" or capabilities.idempotency_ttl is None:
        return False
    return real_now - charge.first_sent_at < capabilities.idempotency_ttl - timedelta(hours=1)


async def _record(deps: Deps, account: Account, answered: Sequence[AnsweredCall]) -> None:
    """Record answers in one transaction. If that fails, record each answer in a transaction of its own.

    Then cancel second charges at the gateway.
    """
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
    for (call, _), second in zip(answered, seconds, strict=True):
        if second is not None:
            await second_charges.plan_checks(work, call.charge.charge_id)
    return found


def _log_failure(call: GatewayCall, failure: BaseException) -> None:
    """Log the failure of one call. After the invoice's lease expires, a worker continues with the stored charge."""
    log.error("charge.attempt_failed", invoice_id=str(call.invoice.invoice_id), exc_info=failure)
