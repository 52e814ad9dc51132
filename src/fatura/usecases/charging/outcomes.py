"""Record gateways' answers to charge attempts, and the invoice transitions that follow (D-33, D-34).

`issuance` calls `record_all` with its answers; `late_charge_checks` calls `record` for each charge that it finds.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.charging import (
    EMPTY_LOOKUP_GAP,
    EMPTY_LOOKUPS_NEEDED,
    ISSUE_DELAYED_AFTER,
    LOOKUP_COUNTS_AFTER,
    OPEN_STATES,
    RETRY_DELAYS,
    AttemptState,
    ChargeAttempt,
    retry_delay,
)
from fatura.domain.invoice import IssueFailure
from fatura.domain.invoice_states import Fact
from fatura.gateways import port
from fatura.observability import log
from fatura.store.charging import attempts, claims
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.restore import charge_matching
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.charging import second_charges
from fatura.usecases.charging.gateway_calls import (
    AnsweredCall,
    CallKind,
    GatewayAnswer,
    GatewayCall,
    LookupUnsupportedError,
    SeveralChargesError,
)
from fatura.usecases.transaction import LaneName, Work
from fatura.views.events import IssueErrorView

LOOK_UP_AFTER = timedelta(seconds=5)
"""Delay before the first look-up of a charge whose outcome is unknown."""
VISIBLE_WITHIN = LOOKUP_COUNTS_AFTER + EMPTY_LOOKUP_GAP
"""Time after a request by which its charge must be visible at the gateway (D-125)."""


async def record_all(work: Work, answered: Sequence[AnsweredCall]) -> Sequence[port.Charge | None]:
    """Record answers for different invoices; return for each what `record` would return.

    Most answers are the attempt's expected charge. Those are recorded together, by one statement for each table.
    """
    current = await attempts.lock(
        work.tx,
        [call.invoice.invoice_id for call, _ in answered],
        [call.attempt.number for call, _ in answered],
    )
    confirming = [
        (call, answer)
        for call, answer in answered
        if isinstance(answer, port.Charge) and _confirms(call, current[call.invoice.invoice_id], answer)
    ]
    issued = await _issue(work, confirming)
    return [
        None if call.invoice.invoice_id in issued else await record(work, call, answer)
        for call, answer in answered
    ]


async def record(work: Work, call: GatewayCall, answer: GatewayAnswer) -> port.Charge | None:
    """Record one answer. If it is a second charge, emit its event and return it; the caller must cancel it.

    A charge is always recorded, whichever worker got it. Any other answer is ignored if the attempt has changed since
    this worker reserved it: this worker's lease may have expired, and another worker may have sent the attempt again.
    """
    current = await attempts.lock_one(work.tx, call.invoice.invoice_id, call.attempt.number)
    found_since = set(current.known_charge_ids).difference(call.attempt.known_charge_ids)
    if current.state is AttemptState.SENDING and found_since:
        await _look_up_all(work, call, answer)
    elif isinstance(answer, port.Charge):
        return await _record_charge(work, call, current, charge=answer)
    elif current.state is AttemptState.SENDING and current.sent_at == call.attempt.sent_at:
        await _record_no_charge(work, call, current, answer=answer)
    else:
        log.warning(
            "charge.stale_answer_ignored", invoice_id=str(call.invoice.invoice_id), answer=str(answer)
        )
    return None


def _confirms(call: GatewayCall, current: ChargeAttempt, charge: port.Charge) -> bool:
    """Return whether the attempt expects this charge, and no restore has found others since the call was reserved."""
    return (
        current.state in OPEN_STATES
        and current.gateway_invoice_id is None
        and charge.amount_cents == call.invoice.total_cents
        and set(current.known_charge_ids) <= set(call.attempt.known_charge_ids)
    )


async def _issue(work: Work, confirming: Sequence[tuple[GatewayCall, port.Charge]]) -> set[UUID]:
    """Issue invoices with their charges; return the ids of the issued ones. Canceled invoices are not issued."""
    reports = [
        Report(
            call.invoice.invoice_id,
            Fact.CHARGE_CONFIRMED,
            gateway_invoice_id=charge.charge_id,
            charge_due_date=call.attempt.charge_due_date,
            poll_at=None if charge.state is port.ChargeState.OPEN else work.now,
        )
        for call, charge in confirming
    ]
    issued = await invoice_moves.report(work, reports)
    confirmed = [(call.attempt, charge) for call, charge in confirming if call.invoice.invoice_id in issued]
    if confirmed:
        charge_ids = [charge.charge_id for _, charge in confirmed]
        await attempts.confirm(work.tx, [attempt for attempt, _ in confirmed], charge_ids=charge_ids)
        if any(charge.state is not port.ChargeState.OPEN for _, charge in confirmed):
            work.notify(LaneName.RECONCILIATION)
    return issued


async def _look_up_all(work: Work, call: GatewayCall, answer: GatewayAnswer) -> None:
    """Schedule a look-up of all the attempt's charges, because a restore found charges unknown to this call (D-123)."""
    if isinstance(answer, port.Charge):
        await charge_matching.add_charge(
            work.tx, call.invoice.invoice_id, call.attempt.number, charge_id=answer.charge_id
        )
    await _schedule_retry(work, call.invoice, at=work.now)


async def _record_charge(
    work: Work, call: GatewayCall, current: ChargeAttempt, *, charge: port.Charge
) -> port.Charge | None:
    """Issue the invoice with a charge. If it is a second charge, emit its event and return it for canceling."""
    invoice = call.invoice
    if current.gateway_invoice_id == charge.charge_id:
        return None
    if current.state not in OPEN_STATES:
        await second_charges.emit(work, invoice.invoice_id, known=current.gateway_invoice_id, charge=charge)
        return charge
    if charge.amount_cents != invoice.total_cents:
        if charge.state is port.ChargeState.CANCELED and current.error_code is not None:
            # `invoice.issue_failed` reported this charge; a person then canceled it and retried issuance
            await attempts.mark(work.tx, call.attempt, AttemptState.FAILED)
            await _schedule_retry(work, invoice, at=work.now)
            return None
        detail = (
            f"The gateway's charge {charge.charge_id} is for {charge.amount_cents} cents; check it there."
        )
        await _give_up(work, call, AttemptState.PARKED, code="amount_differs", detail=detail)
        return None
    if await _issue(work, [(call, charge)]):
        return None
    await second_charges.emit(work, invoice.invoice_id, known=current.gateway_invoice_id, charge=charge)
    if charge.state is port.ChargeState.PAID:
        payment = Report(invoice.invoice_id, Fact.PAYMENT_CONFIRMED, paid_at=charge.paid_at)
        await invoice_moves.report(work, [payment])
    return charge


async def _record_no_charge(
    work: Work, call: GatewayCall, current: ChargeAttempt, *, answer: port.GatewayError | None
) -> None:
    """Handle an empty look-up or a failure: retry, wait for the connection, or stop until a person acts."""
    failures = call.invoice.issue_failures
    match answer:
        case None:
            await _record_empty_lookup(work, call, current)
        case port.PermanentError() if call.kind is CallKind.REPEAT:
            await _record_refused_repeat(work, call, answer)
        case port.PermanentError(code=code, detail=detail) if call.kind is CallKind.SEND:
            await _give_up(work, call, AttemptState.FAILED, code=code, detail=detail)
        case LookupUnsupportedError():
            detail = (
                "The answer was lost and the gateway has no look-up; check it there, then retry issuance."
            )
            await _give_up(work, call, AttemptState.PARKED, code="outcome_unknown", detail=detail)
        case SeveralChargesError():
            detail = (
                f"The gateway holds several charges: {answer}. Cancel all but one there, then retry issuance."
            )
            await _give_up(work, call, AttemptState.PARKED, code="second_charge", detail=detail)
        case port.AuthFailedError():
            await _mark_absent_unless_repeated(work, call)
            message = "The gateway refuses the credentials."
            await wait_for_connection(work, call.invoice, "credentials_refused", message=message)
        case port.UnknownOutcomeError():
            delay = retry_delay(failures) if failures else LOOK_UP_AFTER
            await _schedule_retry(work, call.invoice, at=work.now + delay, error=answer)
        case _:  # a TransientError, or any failure of a look-up
            await _mark_absent_unless_repeated(work, call)
            await _schedule_retry(work, call.invoice, at=work.now + retry_delay(failures + 1), error=answer)


async def _record_refused_repeat(work: Work, call: GatewayCall, refusal: port.PermanentError) -> None:
    """Retry a refused REPEAT while its charge may still become visible. After that, park the attempt (D-121, D-125)."""
    assert call.earlier_sent_at is not None, "a repeat follows an earlier sending"
    if call.reserved_at - call.earlier_sent_at < VISIBLE_WITHIN:
        await _schedule_retry(work, call.invoice, at=work.now + VISIBLE_WITHIN, error=refusal)
        return
    detail = (
        f"The answer was lost, and the gateway refuses the same call now ({refusal.detail}); check there for the "
        "charge, then retry issuance."
    )
    await _give_up(work, call, AttemptState.PARKED, code="outcome_unknown", detail=detail)


async def _mark_absent_unless_repeated(work: Work, call: GatewayCall) -> None:
    """Mark the attempt absent if a SEND failed. Before a REPEAT or LOOK_UP, an earlier request may have succeeded."""
    if call.kind is CallKind.SEND:
        await attempts.mark(work.tx, call.attempt, AttemptState.ABSENT)


async def _record_empty_lookup(work: Work, call: GatewayCall, current: ChargeAttempt) -> None:
    """Mark a charge absent after two empty look-ups at least 60 s apart (D-33).

    A look-up earlier than LOOKUP_COUNTS_AFTER after the request does not count. The time of a look-up is when it was
    reserved, because the worker may be suspended before it records the answer.
    """
    counts_from = current.sent_at + LOOKUP_COUNTS_AFTER
    if current.looked_up_at is not None:
        counts_from = current.looked_up_at + EMPTY_LOOKUP_GAP
    if call.reserved_at < counts_from:
        await _schedule_retry(work, call.invoice, at=counts_from)
    elif current.empty_lookups + 1 >= EMPTY_LOOKUPS_NEEDED:
        await attempts.mark(work.tx, call.attempt, AttemptState.ABSENT)
        await second_charges.plan_checks(work, call.invoice.invoice_id, call.attempt.number)
        await _schedule_retry(work, call.invoice, at=work.now)
    else:
        await attempts.count_empty_lookup(work.tx, call.attempt, looked_up_at=call.reserved_at)
        await _schedule_retry(work, call.invoice, at=call.reserved_at + EMPTY_LOOKUP_GAP)


async def _give_up(work: Work, call: GatewayCall, state: AttemptState, *, code: str, detail: str) -> None:
    """Stop issuing until a person acts, and emit `invoice.issue_failed`; the invoice stays `ready` (D-34)."""
    await attempts.mark(work.tx, call.attempt, state, error_code=code, error_detail=detail)
    await claims.reschedule_issuance(
        work.tx,
        call.invoice,
        next_attempt_at=None,
        failures=0,
        failing_since=None,
        delay_emitted=False,
        error=IssueFailure(code, detail, work.now),
    )
    error = IssueErrorView(code=code, message=detail)
    await invoice_moves.alert(work, call.invoice.invoice_id, "invoice.issue_failed", error=error)


async def wait_for_connection(work: Work, invoice: ClaimedInvoice, code: str, *, message: str) -> None:
    """Retry every hour until the connection works again; emit `invoice.issue_delayed` once (D-34)."""
    if not invoice.issue_delay_emitted:
        error = IssueErrorView(code=code, message=message)
        await invoice_moves.alert(work, invoice.invoice_id, "invoice.issue_delayed", error=error)
    await claims.reschedule_issuance(
        work.tx,
        invoice,
        next_attempt_at=work.now + RETRY_DELAYS[-1],
        failures=invoice.issue_failures + 1,
        failing_since=invoice.issue_failing_since or work.now,
        delay_emitted=True,
    )


async def _schedule_retry(
    work: Work, invoice: ClaimedInvoice, *, at: datetime, error: port.GatewayError | None = None
) -> None:
    """Schedule the next call; emit `invoice.issue_delayed` once after an hour of failures (D-34)."""
    since = invoice.issue_failing_since or work.now
    is_late = work.now - since >= ISSUE_DELAYED_AFTER
    if is_late and not invoice.issue_delay_emitted:
        message = str(error) if error else "The gateway does not know the charge yet."
        alert = IssueErrorView(code="retrying", message=message)
        await invoice_moves.alert(work, invoice.invoice_id, "invoice.issue_delayed", error=alert)
    await claims.reschedule_issuance(
        work.tx,
        invoice,
        next_attempt_at=at,
        failures=invoice.issue_failures + (1 if error else 0),
        failing_since=since,
        delay_emitted=invoice.issue_delay_emitted or is_late,
    )
