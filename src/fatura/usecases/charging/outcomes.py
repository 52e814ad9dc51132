"""What each answer to an attempt means, recorded in one transaction with the move it causes (D-33, D-34)."""

from collections.abc import Awaitable, Sequence
from datetime import timedelta
from uuid import UUID

from fatura.domain.charging import (
    EMPTY_LOOKUP_GAP,
    EMPTY_LOOKUPS_NEEDED,
    LATE_CHECK_GAPS,
    LOOKUP_COUNTS_AFTER,
    AttemptState,
    retry_delay,
)
from fatura.domain.invoice_states import Fact
from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    ChargeState,
    GatewayError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
)
from fatura.observability import log
from fatura.store.charging import charges, late_charge_checks
from fatura.store.charging.charges import LockedAttempt
from fatura.store.restore import charge_matching
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.charging import delays
from fatura.usecases.charging.delays import Tried
from fatura.usecases.lane_names import LaneName
from fatura.usecases.operations import call_counts
from fatura.usecases.transaction import Work

LOOK_UP_AFTER = timedelta(seconds=5)
"""How soon a charge of unknown outcome is looked up for the first time."""
SHOWN_WITHIN = LOOKUP_COUNTS_AFTER + EMPTY_LOOKUP_GAP
"""How long a charge may take to be shown, however slowly a gateway's books are kept."""
OPEN = (AttemptState.SENDING, AttemptState.ABSENT, AttemptState.PARKED)
"""States of an attempt that a charge may still confirm."""


class CannotBeKnownError(GatewayError):
    """The gateway offers neither a key nor a look-up: only a person can say whether the charge exists (D-33)."""


class SeveralChargesError(GatewayError):
    """A restore found several charges of one invoice that are not canceled: a person has to choose (D-123)."""


Answer = Charge | GatewayError | None
"""What came of a call: a charge, a failure, or (None) an empty look-up."""


async def caught(call: Awaitable[Charge | None]) -> Answer:
    """Return the gateway's answer, its failure as a value."""
    answer: Answer
    try:
        answer = await call
    except TimeoutError:
        answer = TransientError("no answer to a look-up in time")
    except GatewayError as error:
        answer = error
    call_counts.charge_attempts.labels(call_counts.charge_outcome(answer)).inc()
    return answer


async def record_all(work: Work, answered: Sequence[tuple[Tried, Answer]]) -> Sequence[Charge | None]:
    """Record answers to attempts of different invoices; charges that simply answer theirs, nearly all, in sets.

    Returns for each what `record` would.
    """
    locked = await charges.lock_attempts(
        work.tx,
        [tried.attempt.invoice_id for tried, _ in answered],
        [tried.attempt.attempt for tried, _ in answered],
    )
    confirming = [
        (tried, answer)
        for tried, answer in answered
        if isinstance(answer, Charge) and _confirms(tried, locked[tried.attempt.invoice_id], answer)
    ]
    issued = await _issue(work, confirming)
    return [
        None if tried.attempt.invoice_id in issued else await record(work, tried, answer)
        for tried, answer in answered
    ]


def _confirms(tried: Tried, locked: LockedAttempt, charge: Charge) -> bool:
    """Say whether a charge is what the attempt waits for, and nothing else is known of it."""
    return (
        locked.state in OPEN
        and locked.gateway_invoice_id is None
        and charge.amount_cents == tried.attempt.amount_cents
        and set(locked.known_charge_ids) <= set(tried.known_charge_ids)
    )


async def _issue(work: Work, confirming: Sequence[tuple[Tried, Charge]]) -> set[UUID]:
    """Issue invoices by their charges; return which: not those canceled when their charge was believed absent."""
    reports = [
        Report(
            tried.attempt.invoice_id,
            Fact.CHARGE_CONFIRMED,
            gateway_invoice_id=charge.charge_id,
            charge_due_date=tried.attempt.charge_due_date,
            poll_at=None if charge.state is ChargeState.OPEN else work.now,
        )
        for tried, charge in confirming
    ]
    issued = await invoice_moves.report(work, reports)
    confirmed = [
        (tried.attempt, charge.charge_id)
        for tried, charge in confirming
        if tried.attempt.invoice_id in issued
    ]
    if confirmed:
        await charges.confirm_attempts(
            work.tx,
            [attempt.invoice_id for attempt, _ in confirmed],
            [attempt.attempt for attempt, _ in confirmed],
            charge_ids=[charge_id for _, charge_id in confirmed],
        )
        if any(charge.state is not ChargeState.OPEN for _, charge in confirming):
            work.notify(LaneName.RECONCILIATION)
    return issued


async def record(work: Work, tried: Tried, answer: Answer) -> Charge | None:
    """Record one attempt's answer, and what follows from it; return a charge that is one too many and was told.

    A charge is a fact whoever brings it. Everything else counts only while the attempt is as this worker reserved
    it: a worker that froze and lost its lease must not undo what another has sent since.
    """
    locked = await charges.lock_attempt(work.tx, tried.attempt.invoice_id, tried.attempt.attempt)
    found_since = set(locked.known_charge_ids).difference(tried.known_charge_ids)
    if locked.state is AttemptState.SENDING and found_since:
        await _look_again(work, tried, answer)
    elif isinstance(answer, Charge):
        return await _confirm(work, tried, locked, charge=answer)
    elif locked.state is AttemptState.SENDING and locked.sent_at == tried.sent_at:
        await _without_charge(work, tried, locked, answer=answer)
    else:
        log.warning("issuance.stale_answer", invoice_id=str(tried.attempt.invoice_id), answer=str(answer))
    return None


async def _look_again(work: Work, tried: Tried, answer: Answer) -> None:
    """A restore found charges of the attempt while this worker called: all of them are looked at together (D-123)."""
    if isinstance(answer, Charge):
        await charge_matching.add_charge(
            work.tx, tried.attempt.invoice_id, tried.attempt.attempt, charge_id=answer.charge_id
        )
    await delays.retry(work, tried, next_attempt_at=work.now, error=None)


async def _without_charge(
    work: Work, tried: Tried, locked: LockedAttempt, *, answer: GatewayError | None
) -> None:
    match answer:
        case None:
            await _empty_lookup(work, tried, locked)
        case PermanentError() if (
            tried.repeats_sent_at and tried.asked_at - tried.repeats_sent_at < SHOWN_WITHIN
        ):
            await delays.retry(work, tried, next_attempt_at=work.now + SHOWN_WITHIN, error=answer)
        case PermanentError(detail=detail) if tried.repeats_sent_at:
            lost = (
                f"The answer was lost, and the gateway refuses the same call now ({detail}); look there for the "
                "charge, then retry issuance."
            )
            await delays.give_up(work, tried, AttemptState.PARKED, code="outcome_unknown", detail=lost)
        case PermanentError(code=code, detail=detail) if not tried.looked_up:
            await delays.give_up(work, tried, AttemptState.FAILED, code=code, detail=detail)
        case CannotBeKnownError():
            lost = "The answer was lost and the gateway cannot be asked; look there, then retry issuance."
            await delays.give_up(work, tried, AttemptState.PARKED, code="outcome_unknown", detail=lost)
        case SeveralChargesError():
            several = (
                f"The gateway holds several charges: {answer}. Cancel all but one there, then retry issuance."
            )
            await delays.give_up(work, tried, AttemptState.PARKED, code="second_charge", detail=several)
        case AuthFailedError():
            await _leave_open(work, tried)
            refused = "The gateway refuses the credentials."
            await delays.wait_for_connection(work, tried.claimed, "credentials_refused", message=refused)
        case UnknownOutcomeError():
            failures = tried.claimed.issue_failures
            delay = retry_delay(failures) if failures else LOOK_UP_AFTER
            await delays.retry(work, tried, next_attempt_at=work.now + delay, error=answer)
        case _:
            await _leave_open(work, tried)
            delay = retry_delay(tried.claimed.issue_failures + 1)
            await delays.retry(work, tried, next_attempt_at=work.now + delay, error=answer)


async def _settle(work: Work, tried: Tried, state: AttemptState) -> None:
    await charges.settle_attempt(work.tx, tried.attempt.invoice_id, tried.attempt.attempt, state=state)


async def _leave_open(work: Work, tried: Tried) -> None:
    """Note that nothing was created, so that the same attempt may be sent again.

    A failed look-up, or a failed repeat of a call, does not say so: the first sending may have made the charge.
    """
    if not (tried.looked_up or tried.repeats_sent_at):
        await _settle(work, tried, AttemptState.ABSENT)


async def _confirm(work: Work, tried: Tried, locked: LockedAttempt, *, charge: Charge) -> Charge | None:
    """Issue the invoice by a charge; return one that is beside the invoice's own, or on a canceled invoice."""
    attempt = tried.attempt
    if locked.gateway_invoice_id == charge.charge_id:
        return None
    if locked.state not in OPEN:
        await emit_second_charge(work, attempt.invoice_id, known=locked.gateway_invoice_id, charge=charge)
        return charge
    if charge.amount_cents != attempt.amount_cents:
        if (
            charge.state is ChargeState.CANCELED and locked.error_code is not None
        ):  # by a person, who asks again
            await _settle(work, tried, AttemptState.FAILED)
            await delays.retry(work, tried, next_attempt_at=work.now, error=None)
            return None
        detail = f"The gateway's charge {charge.charge_id} is over {charge.amount_cents} cents; look there."
        await delays.give_up(work, tried, AttemptState.PARKED, code="amount_differs", detail=detail)
        return None
    if not await _issue(work, [(tried, charge)]):
        await emit_second_charge(work, attempt.invoice_id, known=locked.gateway_invoice_id, charge=charge)
        if charge.state is ChargeState.PAID:
            unexpected = Report(attempt.invoice_id, Fact.PAYMENT_CONFIRMED, paid_at=charge.paid_at)
            await invoice_moves.report(work, [unexpected])
        return charge
    return None


async def emit_second_charge(work: Work, invoice_id: UUID, *, known: str | None, charge: Charge) -> None:
    """Tell a person at once of a charge beside the one that is known, after a refusal or on a canceled invoice."""
    message = f"The gateway also holds the charge {charge.charge_id}, which is one too many; see to it there."
    log.error(
        "issuance.second_charge",
        invoice_id=str(invoice_id),
        known=known,
        second=charge.charge_id,
    )
    error: dict[str, object] = {
        "code": "second_charge",
        "message": message,
        "gatewayInvoiceId": charge.charge_id,
    }
    await invoice_moves.alert(work, invoice_id, "invoice.issue_failed", error=error)


async def _empty_lookup(work: Work, tried: Tried, locked: LockedAttempt) -> None:
    """Believe in absence only after two empty look-ups a minute apart, neither of them too early (D-33).

    What counts is when the gateway was asked: a worker that froze over the answer brings old news.
    """
    invoice_id, number = tried.attempt.invoice_id, tried.attempt.attempt
    counts_from = locked.sent_at + LOOKUP_COUNTS_AFTER
    if locked.looked_up_at is not None:
        counts_from = locked.looked_up_at + EMPTY_LOOKUP_GAP
    if tried.asked_at < counts_from:
        await delays.retry(work, tried, next_attempt_at=counts_from, error=None)
    elif locked.empty_lookups + 1 >= EMPTY_LOOKUPS_NEEDED:
        await _settle(work, tried, AttemptState.ABSENT)
        await late_charge_checks.plan(
            work.tx, invoice_id, number, next_check_at=work.now + LATE_CHECK_GAPS[0]
        )
        await delays.retry(work, tried, next_attempt_at=work.now, error=None)
    else:
        await charges.note_empty_lookup(work.tx, invoice_id, number, looked_up_at=tried.asked_at)
        await delays.retry(work, tried, next_attempt_at=tried.asked_at + EMPTY_LOOKUP_GAP, error=None)
