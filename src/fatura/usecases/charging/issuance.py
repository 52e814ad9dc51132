"""Issue invoices: reserve a charge for each, call the gateways, record the answers (D-33, D-34).

Workers call `issue`; the retry-issuance route calls `retry`. `reservation` decides which calls to make, and `outcomes`
handles the answers.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import IN_DOUBT, ChargeStage
from fatura.domain.charging import (
    BEHIND_DELAY,
    EMPTY_LOOKUP_GAP,
    ISSUES_APART,
    LOOKUP_COUNTS_AFTER,
)
from fatura.domain.errors import (
    INVOICE_NOT_READY,
    EngineError,
    account_recovering,
    account_suspended,
    require,
)
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, Gateway, UnknownOutcomeError
from fatura.observability import log
from fatura.store.charging import charges, claims, issuance_state, refund_requests, spacing, waiting
from fatura.store.restore import frozen_accounts
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.billing import invoices as shown_invoices
from fatura.usecases.charging import (
    found_charges,
    gateway_calls,
    outcomes,
    reservation,
    retries,
)
from fatura.usecases.charging.gateway_calls import AnsweredCall, GatewayAnswer, GatewayCall
from fatura.usecases.connections import charge_calls, connection_health
from fatura.usecases.database_clock import MAX_CLOCK_SKEW
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, is_repeat
from fatura.usecases.one_by_one import each_alone_if_one_fails
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import second_charges
from fatura.usecases.transaction import (
    DATABASE_FAILURES,
    DeadlockError,
    LockTimeoutError,
    Work,
    in_audited_transaction,
    in_snapshot,
    in_transaction,
)
from fatura.views.invoices import InvoiceView

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
RECORD_AFTER_SENDING_SECONDS = LEASE.total_seconds() - gateway_calls.SEND_WITHIN_SECONDS
"""Time between the latest instant for sending a request and the end of the lease."""
RECORD_LOCKED_SECONDS = 10.0
"""Maximum time for which an answer is recorded again while another transaction locks its rows. Later answers wait."""
RECORD_AGAIN_SECONDS = 1.0
"""Maximum pause before answers are recorded again that the database failed to record."""
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

    Return how many invoices were claimed. Raises DATABASE_FAILURES.
    """
    limit = deps.answering.limit(account.account_id, limit)
    count, calls = await in_transaction(deps, account, _reserve_due, limit=limit)
    await call_and_record(deps, account, calls)
    return count


async def retry(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    invoice_id: UUID,
    *,
    draft: AuditDraft | None,
) -> InvoiceView:
    """Issue a `ready` invoice now, and return it after its gateway answered or timed out (D-34, D-113).

    - If the newest charge failed, send a new charge.
    - If the newest charge is parked, look up the charges that were found for it at the gateway. But if no charge was
      found, or if the error is `charge_missing` or `charge_repeated`, send a new charge.
    - If the outcome of the newest request is unknown, repeat the request or look up its charge.
    - If a worker has leased the invoice, make no call.

    Raises EngineError: `engine.idempotency_key_reused`, `engine.not_found`, `engine.invoice_not_ready`,
    `engine.account_recovering`, `engine.account_suspended`, `engine.rate_limited`, `engine.unavailable`.
    """
    with deps.gateway_requests.places(account.account_id) as places:
        calls = await in_audited_transaction(deps, account, draft, _reserve_one, request, invoice_id, places)
        await call_and_record(deps, account, calls)
    return await in_snapshot(deps, account, shown_invoices.read, invoice_id)


async def call_and_record(deps: Deps, account: Account, calls: Sequence[GatewayCall]) -> None:
    """Make all calls concurrently, and record their answers.

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
    """Lease invoices due for issuing and store their charges. Return how many were leased, and the calls to make.

    While the account is frozen after a restore or suspended, lease none (D-123, D-242).
    """
    if not await frozen_accounts.may_charge(work.tx):
        return 0, []
    real_now = work.deps.clock()
    invoice_ids = await claims.claim_ready(
        work.tx, now=work.now, real_now=real_now, lease_until=real_now + LEASE, limit=limit
    )
    return len(invoice_ids), await _reserve_leased(work, invoice_ids)


async def _reserve_leased(
    work: Work, invoice_ids: Sequence[UUID], *, is_probe: bool = False
) -> Sequence[GatewayCall]:
    """Store the charges of invoices that this transaction has leased, and return the calls to make.

    If this fails unexpectedly, handle the invoices one by one, and put off each invoice that fails (D-186).
    """
    real_now, send_before = work.deps.clock(), time.monotonic() + gateway_calls.SEND_WITHIN_SECONDS
    # lock all subscriptions now, in id order: locking them one by one could cause deadlocks
    await spacing.lock_subscriptions(work.tx, invoice_ids)
    reserve = partial(_reserve_sendable, lease_until=real_now + LEASE, is_probe=is_probe)
    calls = await each_alone_if_one_fails(work, invoice_ids, reserve, put_off=_put_off)
    # Calls must be sent within SEND_WITHIN_SECONDS of the lease, not of their reservation: reserving the invoices one
    # by one may take long.
    return [replace(each, reserved_at_real=real_now, send_before=send_before) for each in calls]


async def _put_off(work: Work, invoice_id: UUID) -> None:
    log.exception("charge.attempt_put_off", invoice_id=str(invoice_id))
    await each_alone_if_one_fails(
        work, [invoice_id], retries.wait_after_failure, put_off=retries.wait_unreported
    )


async def _reserve_sendable(
    work: Work, invoice_ids: Sequence[UUID], *, lease_until: datetime, is_probe: bool
) -> Sequence[GatewayCall]:
    """Store the charges of those leased invoices that may be issued now (D-57), and return the calls to make.

    The caller has locked the subscriptions of all these invoices.
    """
    sendable = await _spaced(work, invoice_ids)
    if not sendable:
        return ()
    return await reservation.reserve(work, sendable, lease_until=lease_until, is_probe=is_probe)


async def _spaced(work: Work, invoice_ids: Sequence[UUID]) -> Sequence[UUID]:
    """Return the invoices that may be issued now, and put the others off (D-57).

    If several invoices of a subscription wait, for example because they were held, the invoice of the earliest cycle is
    issued first. The later invoices follow at least 24 hours apart. While the first invoice cannot be sent, put the
    later ones off by only an hour. After a day, they could become due together with the first invoice, and would be put
    off again.
    """
    until: dict[UUID, datetime] = {}
    for each in await spacing.uncharged(work.tx, invoice_ids, now=work.now, since=work.now - ISSUES_APART):
        if each.others_sent_at is not None:
            until[each.invoice_id] = each.others_sent_at + ISSUES_APART
        elif each.is_behind:
            until[each.invoice_id] = work.now + BEHIND_DELAY
    await claims.put_off(work.tx, list(until), until=list(until.values()))
    return [invoice_id for invoice_id in invoice_ids if invoice_id not in until]


async def reserve_probe(work: Work, connection_id: UUID) -> Sequence[GatewayCall]:
    """Lease one invoice that waits for a failing connection, and store its charge (D-55).

    Return no call if no invoice waits, if the account is frozen or suspended, or if the invoice is put off because of
    D-57 or an unexpected error.
    """
    if not await frozen_accounts.may_charge(work.tx):
        return []
    real_now = work.deps.clock()
    invoice_ids = await waiting.claim(
        work.tx, connection_id, [InvoiceStatus.READY], real_now=real_now, lease_until=real_now + LEASE
    )
    return await _reserve_leased(work, invoice_ids, is_probe=True)


async def _reserve_one(
    work: Work, request: IdempotentRequest | None, invoice_id: UUID, places: Places
) -> Sequence[GatewayCall]:
    """Lease one invoice and store its charge. If the charge needs a call, count the call in `places` (D-175)."""
    is_repeated = await is_repeat(work, request)
    if not is_repeated:
        work.audit(invoice_id, before={}, after={})
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    if state.status is not InvoiceStatus.READY:
        raise EngineError(INVOICE_NOT_READY, f"The invoice {NOT_READY_REASONS[state.status]}.")
    if not await frozen_accounts.may_record(work.tx):
        raise account_recovering()
    if not await frozen_accounts.may_charge(work.tx):
        raise account_suspended()
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
        return []  # an earlier request with this key has retried issuance, and the charge was parked afterwards
    await retries.pace(work, state)
    if is_parked and state.charge is not None:
        await charges.reopen_parked(work.tx, invoice_id, now=work.now)
        # the person who checked the gateway may have overlooked a charge there
        await second_charges.plan_checks(work, [state.charge.charge_id])
    lease_until = real_now + LEASE
    await issuance_state.make_due(work.tx, invoice_id, now=work.now, lease_until=lease_until)
    calls = await reservation.reserve(work, [invoice_id], lease_until=lease_until, is_by_hand=True)
    if calls:
        places.take(1)
    return calls


async def _record(deps: Deps, account: Account, answered: Sequence[AnsweredCall]) -> None:
    """Record answers in one transaction. If that fails, record each answer in a transaction of its own.

    If an answer cannot be recorded because of an unexpected error, put its invoice off. Afterwards, ask the gateways to
    cancel the second charges among the answers.
    """
    if not answered:
        return
    try:
        seconds = await _record_while_leased(deps, account, answered)
    except Exception as failure:  # noqa: BLE001 - each answer is recorded alone; a failure of one is logged
        if len(answered) > 1:
            await asyncio.gather(*(_record(deps, account, [each]) for each in answered))
        else:
            ((call, answer),) = answered
            _log_failure(call, failure)
            if not isinstance(failure, DATABASE_FAILURES):
                await _put_off_unrecorded(deps, account, call, answer)
        return
    await asyncio.gather(*(second_charges.cancel(gateway, second) for gateway, second in seconds))


async def _record_while_leased(
    deps: Deps, account: Account, answered: Sequence[AnsweredCall]
) -> Sequence[tuple[Gateway, Charge]]:
    """Run `_record_answers` in a transaction. If the database fails, repeat this until the leases end.

    Otherwise, the engine would forget the id of a new charge. At a gateway whose search shows the charge late, the
    engine could then request a second charge (D-33). If a lock causes the failure, repeat only the transaction of a
    single answer, because a locked row must not delay the other answers.
    """
    ends_at = min(call.send_before for call, _ in answered) + RECORD_AFTER_SENDING_SECONDS
    unlocked_by = time.monotonic() + RECORD_LOCKED_SECONDS
    while True:
        try:
            return await in_transaction(deps, account, _record_answers, answered)
        except DATABASE_FAILURES as failure:
            is_lock = isinstance(failure, LockTimeoutError | DeadlockError)
            stops_at = min(ends_at, unlocked_by) if is_lock else ends_at
            if time.monotonic() + RECORD_AGAIN_SECONDS > stops_at or (is_lock and len(answered) > 1):
                raise
            log.warning("charge.answers_not_recorded_yet", answers=len(answered), error=failure)
        await asyncio.sleep(RECORD_AGAIN_SECONDS * random.uniform(0.5, 1))  # noqa: S311 - spreads load


async def _record_answers(work: Work, answered: Sequence[AnsweredCall]) -> Sequence[tuple[Gateway, Charge]]:
    """Record answers; return the second charges to cancel (see `second_charges`), each with its gateway."""
    seconds = await outcomes.record_all(work, answered)
    await charge_calls.record(work, [call.made for call, _ in answered])
    found = [
        (call, second) for (call, _), second in zip(answered, seconds, strict=True) if second is not None
    ]
    for call, second in found:
        await second_charges.plan_checks(work, [call.charge.charge_id])
        # if the cancellation gets no answer, a look reads the charge later and cancels it (D-125)
        await second_charges.look_soon(work, call.charge.connection_id, [second.charge_id])
    return [(call.gateway, second) for call, second in found]


async def _put_off_unrecorded(deps: Deps, account: Account, call: GatewayCall, answer: GatewayAnswer) -> None:
    """Put off an invoice because the answer to its call cannot be recorded.

    If this fails too, remember less: not the charge in the answer, and finally no event about the delay.
    """
    for put_off in (partial(_remember_charge, answer=answer), _record_unknown, _wait_unreported):
        try:
            await in_transaction(deps, account, put_off, call)
        except Exception as failure:  # noqa: BLE001 - logged; a worker continues when the lease has expired
            _log_failure(call, failure)
            if not isinstance(failure, DATABASE_FAILURES):
                continue
        break


async def _remember_charge(work: Work, call: GatewayCall, *, answer: GatewayAnswer) -> None:
    """Store the id of a charge that the gateway answered with, so that later calls read it. Then `_record_unknown`."""
    current = await charges.lock_one(work.tx, call.charge)
    if isinstance(answer, Charge):
        if current.stage in IN_DOUBT and await found_charges.is_ready(work, current):
            await found_charges.add(work, call, answer)
        else:
            await second_charges.look_soon(work, current.connection_id, [answer.charge_id])
    known = (await charges.lock_one(work.tx, call.charge)).known_charge_ids
    await _record_unknown(work, replace(call, charge=replace(call.charge, known_charge_ids=known)))


async def _record_unknown(work: Work, call: GatewayCall) -> None:
    """Record that the outcome of a call is unknown. So the next calls have growing pauses (D-34)."""
    detail = "The gateway's answer cannot be recorded because of an unexpected error; the log has the cause."
    await _record_answers(work, [(call, UnknownOutcomeError(detail))])


async def _wait_unreported(work: Work, call: GatewayCall) -> None:
    """Put an invoice off without an event, unless another worker has recorded an answer or sent the request again."""
    current = await charges.lock_one(work.tx, call.charge)
    is_unknown = current.stage in IN_DOUBT and current.sent_at == call.charge.sent_at
    if is_unknown and await found_charges.is_ready(work, current):
        await retries.wait_unreported(work, call.invoice.invoice_id)


def _log_failure(call: GatewayCall, failure: BaseException) -> None:
    """Log the failure of one call. After the invoice's lease expires, a worker continues with the stored charge."""
    log.error("charge.attempt_failed", invoice_id=str(call.invoice.invoice_id), exc_info=failure)
