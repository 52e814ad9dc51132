"""Record gateways' answers about charges, and report the resulting facts to `invoice_moves` (D-33, D-34).

`issuance` calls `record_all` with its answers; `late_charge_checks` calls `record` for each charge that it finds.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from fatura.domain.charge import IN_DOUBT, MAY_APPEAR, ChargeStage, InvoiceCharge
from fatura.domain.charging import retry_delay
from fatura.domain.gateway_health import CREDENTIALS_REFUSED
from fatura.domain.invoice_states import Fact
from fatura.gateways import port
from fatura.observability import log
from fatura.store.charging import charges, confirmed_charges
from fatura.store.restore import charge_matching
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.charging import found_charges, retries
from fatura.usecases.charging.gateway_calls import (
    AnsweredCall,
    CallKind,
    FoundCharges,
    GatewayAnswer,
    GatewayCall,
    LookupUnsupportedError,
)
from fatura.usecases.payments import gateway_payments, second_charges
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.reconciliation.poll_times import next_poll
from fatura.usecases.transaction import LaneName, Work

LOOK_UP_AFTER = timedelta(seconds=5)
"""Delay before the first look-up of a charge whose outcome is unknown."""


async def record_all(work: Work, answered: Sequence[AnsweredCall]) -> Sequence[port.Charge | None]:
    """Record answers for different invoices. Return the result of `record` for each answer: a second charge, or None.

    Most answers contain the charge as requested. One statement per table records all of these answers.
    """
    current = await charges.lock(work.tx, [call.charge for call, _ in answered])
    confirming = [
        (call, answer)
        for call, answer in answered
        if isinstance(answer, port.Charge) and _confirms(current[call.charge.charge_id], answer)
    ]
    taken = await confirmed_charges.taken(
        work.tx,
        [call.charge for call, _ in confirming],
        gateway_ids=[each.charge_id for _, each in confirming],
    )
    confirming = [each for each in confirming if each[0].charge.charge_id not in taken]
    issued = await _issue(work, confirming)
    ended = [call for call, _ in answered if call.is_sent and call.invoice.invoice_id not in issued]
    if ended:
        await charges.end_calls(work.tx, [call.charge for call in ended])
    return [
        None if call.invoice.invoice_id in issued else await record(work, call, answer)
        for call, answer in answered
    ]


async def record(work: Work, call: GatewayCall, answer: GatewayAnswer) -> port.Charge | None:
    """Record one answer. If the answer is a second charge, emit an event and return the charge; the caller cancels it.

    - A charge in the answer is never ignored, even if this worker's lease has expired.
    - If other charges were found for the request during the call, do not record the answer. Instead, schedule a look-up
      of all found charges and of the charge in the answer. Do the same if `_is_parked_as_missing` is true and the
      answer is a charge.
    - Ignore a failure or an empty look-up if the outcome is known by now. Also ignore it if this worker's lease expired
      and another worker has sent the request again.
    """
    current = await charges.lock_one(work.tx, call.charge)
    found_since = set(current.known_charge_ids).difference(call.charge.known_charge_ids)
    is_shown_again = isinstance(answer, port.Charge) and _is_parked_as_missing(current)
    if is_shown_again and await found_charges.is_ready(work, current):
        await charge_matching.reopen(work.tx, current.charge_id)
        await found_charges.look_up_all(work, call, answer)
        await charge_matching.make_due(work.tx, current.invoice_id, now=work.now)
        work.notify(LaneName.ISSUANCE)
    elif current.stage in IN_DOUBT and found_since and await found_charges.is_ready(work, current):
        await found_charges.look_up_all(work, call, answer)
    elif isinstance(answer, port.Charge):
        return await _record_charge(work, call, current, charge=answer)
    elif isinstance(answer, FoundCharges):
        return await _record_found(work, call, current, found=answer)
    elif current.stage in IN_DOUBT and current.sent_at == call.charge.sent_at:
        await _record_no_charge(work, call, current, answer=answer)
    else:
        log.warning("charge.stale_answer_ignored", invoice_id=str(call.invoice.invoice_id), answer=answer)
    return None


def _confirms(current: InvoiceCharge, charge: port.Charge) -> bool:
    """Return whether `charge` answers the request as expected.

    Return False if charges were found for the request (D-181), because `record` must handle all of them together.
    """
    return (
        current.stage in MAY_APPEAR
        and charge.amount_cents == current.amount_cents
        and not current.known_charge_ids
    )


async def _has_wrong_amount(
    work: Work,
    call: GatewayCall,
    current: InvoiceCharge,
    charge: port.Charge,
    *,
    others: Sequence[port.Charge],
) -> bool:
    """Return whether the gateway's charge has an unexpected amount.

    Usually, the stored amount is expected. If charges were found for the request, `found_charges` decides instead,
    because `fatura restored` may have copied the stored amount from the gateway's charge.
    """
    if not current.known_charge_ids:
        return charge.amount_cents != current.amount_cents
    expected = await found_charges.expectation(work, call.invoice, current, found=[charge, *others])
    return not expected.allows(charge)


async def _issue(work: Work, confirming: Sequence[tuple[GatewayCall, port.Charge]]) -> set[UUID]:
    """Issue each invoice that is `ready`, with its charge. Return the ids of the issued invoices."""
    reports = [
        Report(
            call.invoice.invoice_id,
            Fact.CHARGE_CONFIRMED,
            gateway_invoice_id=charge.charge_id,
            charge_due_date=call.charge.due_date,
            poll_at=work.now if _needs_poll(charge) else next_poll(work, call.charge),
        )
        for call, charge in confirming
    ]
    issued = await invoice_moves.report(work, reports)
    confirmed = [(call, charge) for call, charge in confirming if call.invoice.invoice_id in issued]
    if confirmed:
        await confirmed_charges.confirm(
            work.tx,
            [call.charge for call, _ in confirmed],
            gateway_ids=[answer.charge_id for _, answer in confirmed],
            amounts_cents=[answer.amount_cents for _, answer in confirmed],
            pay=[answer.pay for _, answer in confirmed],
            sent_at=[call.charge.sent_at if call.is_sent else None for call, _ in confirmed],
            now=work.now,
        )
        if any(_needs_poll(answer) for _, answer in confirmed):
            work.notify(LaneName.RECONCILIATION)
    return issued


def _needs_poll(charge: port.Charge) -> bool:
    """Return whether to poll the new charge immediately: it already has payments, or is in another state than open."""
    return charge.state is not port.ChargeState.OPEN or bool(charge.entries)


def _is_parked_as_missing(current: InvoiceCharge) -> bool:
    """Return whether the attempt is parked because the gateway shows no charge, or only canceled ones (D-181)."""
    is_missing = current.stage is ChargeStage.PARKED and current.error_code == "charge_missing"
    return is_missing and bool(current.known_charge_ids)


async def _record_found(
    work: Work, call: GatewayCall, current: InvoiceCharge, *, found: FoundCharges
) -> port.Charge | None:
    """Let the invoice adopt one of the found charges, and record the payments of all other found charges (D-181).

    - If a look-up must be repeated first, do not adopt a charge yet.
    - A payable charge that is not adopted is a second charge: `unmatched_charges` reads and cancels it immediately.
    - `unmatched_charges` reads expired and missing charges later, because they may become payable again. Late look-ups
      search for the missing charges too.
    - If the invoice has got another charge by now, it adopts none: return the chosen charge as a second charge.
    """
    own = await found_charges.to_adopt(work, current, found, read=call.charge.known_charge_ids)
    if await found_charges.wait_for_search(work, call, current, own):
        return None
    if not own.missing and own.search_error is None and current.looked_up_at is not None:
        await charges.forget_empty_lookups(work.tx, current)
    if own.missing and await found_charges.wait_for_missing(work, call, current, own):
        return None
    expected = await found_charges.expectation(work, call.invoice, current, found=found.charges)
    adopted = found_charges.choose(own.charges, expected)
    others = [each for each in found.charges if each is not adopted]
    second = await _record_charge(work, call, current, charge=adopted, others=others)
    invoice_id, connection_id = current.invoice_id, current.connection_id
    seconds = [each for each in others if each.charge_id != current.gateway_invoice_id]
    await found_charges.report_paid(work, current, adopted=adopted, others=seconds)
    await gateway_payments.record(work, [ChargeAnswer(invoice_id, connection_id, each) for each in others])
    payable = [each.charge_id for each in others if each.is_payable]
    if payable:
        await second_charges.look_now(work, connection_id, payable)
    expired = [each.charge_id for each in others if each.state is port.ChargeState.EXPIRED]
    await second_charges.look_late(work, connection_id, expired=expired, missing=own.missing)
    if own.missing or adopted.entries:  # polls possibly cannot read the payments that a list has shown
        await second_charges.plan_checks(work, [current.charge_id])
    return second


async def _record_charge(
    work: Work,
    call: GatewayCall,
    current: InvoiceCharge,
    *,
    charge: port.Charge,
    others: Sequence[port.Charge] = (),
) -> port.Charge | None:
    """Issue the invoice with `charge`, or call `_record_wrong_amount` if the amount of `charge` is wrong.

    - A charge with payments becomes the invoice's charge, whatever its amount. But if such a charge is canceled and its
      amount is wrong, the invoice's payments must also cover the total (D-170).
    - If the invoice has another charge or is closed, emit an event and return `charge`, which the caller must cancel.
    - If another stored charge has the gateway's id of `charge`, park `current`.

    `others` are other charges of the invoice, whose payments the caller records afterwards.
    """
    invoice = call.invoice
    if current.gateway_invoice_id == charge.charge_id:
        # the charge was replaced before the look-up began, but the gateway shows it as payable
        if charge.is_payable and call.charge.stage is current.stage and await _is_replaced(work, current):
            return await _record_second(work, current, charge)
        return None
    if current.stage not in MAY_APPEAR:
        return await _record_second(work, current, charge)
    if await confirmed_charges.taken(work.tx, [current], gateway_ids=[charge.charge_id]):
        await _park_repeated(work, call, current, charge)
        return None
    if await found_charges.is_ready(work, current) and await _has_wrong_amount(
        work, call, current, charge, others=others
    ):
        if not await found_charges.is_paid(work, call.invoice, current, charge=charge, others=others):
            await _record_wrong_amount(work, call, current, charge, others=others)
            return None
        # the invoice is issued before the payment is recorded, so that no invoice is paid without a charge
        if await _issue(work, [(call, charge)]):
            answer = ChargeAnswer(invoice.invoice_id, current.connection_id, charge)
            await gateway_payments.record(work, [answer], due_again={invoice.invoice_id})
            return None
    elif await _issue(work, [(call, charge)]):
        return None
    return await _record_second(work, current, charge)


async def _is_replaced(work: Work, stored: InvoiceCharge) -> bool:
    """Return whether a stored charge should no longer be paid.

    This is so for a canceled charge, and for an expired or missing charge that is not the invoice's newest charge.
    """
    if stored.stage in {ChargeStage.EXPIRED, ChargeStage.MISSING}:
        newest = await charges.newest(work.tx, [stored.invoice_id])
        return newest[stored.invoice_id].charge_id != stored.charge_id
    return stored.stage is ChargeStage.CANCELED


async def _record_wrong_amount(
    work: Work,
    call: GatewayCall,
    current: InvoiceCharge,
    charge: port.Charge,
    *,
    others: Sequence[port.Charge],
) -> None:
    """Park the stored charge, because the gateway's `charge` has a wrong amount, and record the payments of `charge`.

    If `_is_retried` is true, mark the stored charge FAILED instead, so that issuance sends another charge. Report each
    found charge only once, although late look-ups of a parked charge find the same charges again.
    """
    if await _is_retried(work, current, charge):
        await charges.mark(work.tx, call.charge, ChargeStage.FAILED, closed_at=work.now)
        await retries.schedule(work, call.invoice, at=work.now)
        if charge.state is port.ChargeState.EXPIRED:
            expired = [charge.charge_id]
            await second_charges.look_late(work, current.connection_id, expired=expired, missing=())
    elif await second_charges.save_wrong(work, current, charge) or current.stage is not ChargeStage.PARKED:
        detail = found_charges.amounts([charge, *others])
        await retries.park(work, call, code="amount_differs", detail=detail, gateway_id=charge.charge_id)
    await gateway_payments.record(work, [ChargeAnswer(current.invoice_id, current.connection_id, charge)])


async def _is_retried(work: Work, current: InvoiceCharge, charge: port.Charge) -> bool:
    """Return whether a person has retried issuance after `charge` was reported, and nobody can pay `charge` now.

    An expired charge may become payable again. So for an expired charge, return True only if an earlier answer has
    reported it.
    """
    if current.error_code is None or current.stage not in IN_DOUBT:
        return False
    if charge.state is port.ChargeState.EXPIRED:
        return not await second_charges.save_wrong(work, current, charge)
    return charge.state is port.ChargeState.CANCELED


async def _park_repeated(work: Work, call: GatewayCall, current: InvoiceCharge, charge: port.Charge) -> None:
    """Park a charge because the gateway answered its request with a charge that is stored already."""
    if current.stage is ChargeStage.PARKED or not await found_charges.is_ready(work, current):
        return
    detail = (
        f"The gateway answered with the earlier charge {charge.charge_id} and made no new one; check there, then "
        "retry issuance."
    )
    await retries.park(work, call, code="charge_repeated", detail=detail, gateway_id=charge.charge_id)


async def _record_second(work: Work, current: InvoiceCharge, charge: port.Charge) -> port.Charge:
    """Report a second charge unless it is canceled, and record its payments (D-50)."""
    invoice_id, connection_id, known = current.invoice_id, current.connection_id, current.gateway_invoice_id
    if charge.state is not port.ChargeState.CANCELED:
        await second_charges.emit(work, invoice_id, connection_id=connection_id, known=known, charge=charge)
    await gateway_payments.record(work, [ChargeAnswer(invoice_id, connection_id, charge)])
    return charge


async def _record_no_charge(
    work: Work, call: GatewayCall, current: InvoiceCharge, *, answer: port.GatewayError | None
) -> None:
    """Handle an empty look-up or a failure: retry, wait for the connection, or stop until a person acts."""
    failures = call.invoice.issue_failures
    match answer:
        case None:
            await _record_empty_lookup(work, call, current)
        case port.PermanentError() if call.kind is CallKind.REPEAT:
            await _record_refused_repeat(work, call, answer)
        case port.PermanentError(code=code, detail=detail) if call.kind is CallKind.SEND:
            await retries.refuse(work, call, code=code, detail=detail)
            if (
                call.earlier_sent_at is not None
            ):  # the earlier request may have created a charge that the payer has paid
                await second_charges.check_now(work, call.charge.invoice_id, call.charge.number)
        case LookupUnsupportedError():
            detail = (
                "The answer was lost and the gateway has no look-up; check it there, then retry issuance."
            )
            await retries.park(work, call, code="outcome_unknown", detail=detail)
        case port.AuthFailedError():
            await _mark_absent_unless_repeated(work, call)
            detail = "The gateway refuses the credentials."
            await retries.wait_for_connection(work, call.invoice, CREDENTIALS_REFUSED, detail=detail)
        case port.UnknownOutcomeError():
            await charges.mark_unknown(work.tx, [call.charge.charge_id])
            delay = retry_delay(failures) if failures else LOOK_UP_AFTER
            await retries.schedule(work, call.invoice, at=work.now + delay, error=answer)
        case _:  # a TransientError, or any other failure of a look-up
            await _mark_absent_unless_repeated(work, call)
            await retries.schedule(work, call.invoice, at=work.now + retry_delay(failures + 1), error=answer)


async def _record_refused_repeat(work: Work, call: GatewayCall, refusal: port.PermanentError) -> None:
    """Retry a refused REPEAT while the earlier request's charge may still appear at the gateway (D-121, D-125).

    After that, park the charge.
    """
    assert call.earlier_sent_at is not None, "a repeat follows an earlier sending"
    if call.reserved_at - call.earlier_sent_at < retries.VISIBLE_WITHIN:
        await retries.schedule(work, call.invoice, at=work.now + retries.VISIBLE_WITHIN, error=refusal)
        return
    detail = (
        f"The answer was lost, and the gateway refuses the same call now ({refusal.detail}); check there for the "
        "charge, then retry issuance."
    )
    await retries.park(work, call, code="outcome_unknown", detail=detail)


async def _mark_absent_unless_repeated(work: Work, call: GatewayCall) -> None:
    """After a SEND that failed without creating a charge, mark the charge absent.

    After a failed REPEAT or LOOK_UP, do nothing, because an earlier request may have created the charge.
    """
    if call.kind is CallKind.SEND:
        await charges.mark(work.tx, call.charge, ChargeStage.ABSENT)


async def _record_empty_lookup(work: Work, call: GatewayCall, current: InvoiceCharge) -> None:
    """Mark a charge absent after two empty look-ups (D-33)."""
    if await retries.is_second_empty_look_up(work, call, current):
        await charges.mark(work.tx, call.charge, ChargeStage.ABSENT)
        await second_charges.plan_checks(work, [call.charge.charge_id])
        await retries.schedule(work, call.invoice, at=work.now)
