"""Put off an invoice's gateway call, or stop the calls until a person acts (D-34). Limit manual retries (D-113).

Also count the look-ups that show no charge, although the request may have created one (D-33).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import UNSET

from fatura.domain.charge import ChargeStage, InvoiceCharge
from fatura.domain.charging import (
    EMPTY_LOOKUP_GAP,
    EMPTY_LOOKUPS_NEEDED,
    ISSUE_DELAYED_AFTER,
    LOOKUP_COUNTS_AFTER,
    MAX_RETRIES,
    RETRY_DELAYS,
    RETRY_GAP,
    jitter,
    paced_retry,
    retry_delay,
)
from fatura.domain.errors import CUSTOMER_ERASED, RATE_LIMITED, EngineError
from fatura.domain.gateway_health import CREDENTIALS_REFUSED, ConnectionHealth
from fatura.domain.invoice import IssueFailure
from fatura.domain.subscription import ERASED
from fatura.gateways.port import GatewayError
from fatura.observability import log
from fatura.store.charging import charges, claims, issuance_state, waiting
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.subscriptions import erased_rows, erasures
from fatura.usecases.billing import invoice_moves
from fatura.usecases.charging.gateway_calls import GatewayCall
from fatura.usecases.transaction import Work
from fatura.views.events import IssueErrorView

PUT_OFF_JITTER = timedelta(minutes=6)
"""Maximum extra delay when an invoice is put off by an hour.

The extra delay is computed from the invoice's id, and spreads many invoices over time.
"""
VISIBLE_WITHIN = LOOKUP_COUNTS_AFTER + EMPTY_LOOKUP_GAP
"""The engine expects the gateway to show a created charge within this time after its request (D-125)."""
_UNEXPECTED = IssueErrorView(
    code="unexpected_error",
    detail="The invoice could not be issued because of an unexpected error. It is tried again every hour. The log of "
    "the engine has the cause.",
)


async def schedule(
    work: Work, invoice: ClaimedInvoice, *, at: datetime, error: GatewayError | None = None
) -> None:
    """Schedule the next call. Emit `invoice.issue_delayed` once, an hour after the first delay (D-34)."""
    # not later than now: a wrong clock may have set the stored time ahead (D-5)
    since = min(invoice.issue_failing_since or work.now, work.now)
    is_late = work.now - since >= ISSUE_DELAYED_AFTER
    if is_late and not invoice.issue_delay_emitted:
        detail = str(error) if error else "The gateway does not know the charge yet."
        alert = IssueErrorView(code="retrying", detail=detail)
        await invoice_moves.alert(work, invoice.invoice_id, "invoice.issue_delayed", error=alert)
    await claims.reschedule_issuance(
        work.tx,
        invoice,
        next_attempt_at=at,
        failures=invoice.issue_failures + (1 if error else 0),
        failing_since=since,
        delay_emitted=invoice.issue_delay_emitted or is_late,
    )
    if error is not None:
        await waiting.mark(work.tx, [invoice.invoice_id])


async def is_second_empty_look_up(work: Work, call: GatewayCall, current: InvoiceCharge) -> bool:
    """Return whether this empty look-up is the second one, at least EMPTY_LOOKUP_GAP after the first.

    If not, count this look-up, and schedule the next one. A look-up counts only if LOOKUP_COUNTS_AFTER has passed since
    the request. The time of a look-up is when it was reserved, because the worker may be suspended before it records
    the answer.
    """
    # correct the stored times: a host with a wrong clock may have dated the request or the look-up ahead (D-5)
    if current.sent_at > call.reserved_at + VISIBLE_WITHIN:
        current = replace(current, sent_at=call.reserved_at)
        await charges.save_sent(work.tx, current, sent_at=current.sent_at)
    if current.looked_up_at is not None and current.looked_up_at > call.reserved_at:
        current = replace(current, looked_up_at=None, empty_lookups=0)
        await charges.forget_empty_lookups(work.tx, current)
    counts_from = current.sent_at + LOOKUP_COUNTS_AFTER
    if current.looked_up_at is not None:
        counts_from = current.looked_up_at + EMPTY_LOOKUP_GAP
    if call.reserved_at < counts_from:
        await schedule(work, call.invoice, at=counts_from)
        return False
    if current.empty_lookups + 1 >= EMPTY_LOOKUPS_NEEDED:
        return True
    await charges.count_empty_lookup(work.tx, call.charge, looked_up_at=call.reserved_at)
    await schedule(work, call.invoice, at=call.reserved_at + EMPTY_LOOKUP_GAP)
    return False


async def retry_later(work: Work, invoice: ClaimedInvoice, *, error: GatewayError) -> None:
    """Put an invoice off because its charge cannot be sent now."""
    await schedule(work, invoice, at=work.now + retry_delay(invoice.issue_failures + 1), error=error)


async def wait_for_connection(work: Work, invoice: ClaimedInvoice, code: str, *, detail: str) -> None:
    """Put the invoice off for an hour, or until its connection works again if that is earlier.

    Emit `invoice.issue_delayed` once (D-34).
    """
    await _put_off(work, invoice, IssueErrorView(code=code, detail=detail), is_late=True)
    await waiting.mark(work.tx, [invoice.invoice_id])


async def wait_after_failure(work: Work, invoice_ids: Sequence[UUID]) -> Sequence[UUID]:
    """Put invoices off for an hour because of an unexpected error. Emit `invoice.issue_delayed` once (D-186)."""
    for invoice in await claims.read(work.tx, invoice_ids):
        await _put_off(work, invoice, _UNEXPECTED, is_late=True)
    return invoice_ids


async def wait_unreported(work: Work, invoice_id: UUID) -> None:
    """Put off an invoice without an event, because it cannot be read, or its event cannot be built (D-186)."""
    log.exception("charge.delay_not_emitted", invoice_id=str(invoice_id))
    await claims.put_off(work.tx, [invoice_id], until=[_in_an_hour(work, invoice_id)])


async def wait_for_recovery(work: Work, invoice: ClaimedInvoice, health: ConnectionHealth) -> None:
    """Put the invoice off for an hour, or until its failing connection recovers if that is earlier (D-55).

    `invoice.issue_delayed` is emitted after an hour of failures, or immediately if the credentials are
    refused (D-34).
    """
    error = health.error
    assert error is not None, "a failing connection has an error"
    since = invoice.issue_failing_since or work.now
    is_late = work.now - since >= ISSUE_DELAYED_AFTER or error.code == CREDENTIALS_REFUSED
    await _put_off(work, invoice, IssueErrorView(code=error.code, detail=error.detail), is_late=is_late)
    await waiting.mark(work.tx, [invoice.invoice_id])


async def _put_off(work: Work, invoice: ClaimedInvoice, error: IssueErrorView, *, is_late: bool) -> None:
    if is_late and not invoice.issue_delay_emitted:
        await invoice_moves.alert(work, invoice.invoice_id, "invoice.issue_delayed", error=error)
    await claims.reschedule_issuance(
        work.tx,
        invoice,
        next_attempt_at=_in_an_hour(work, invoice.invoice_id),
        failures=invoice.issue_failures + 1,
        failing_since=invoice.issue_failing_since or work.now,
        delay_emitted=invoice.issue_delay_emitted or is_late,
    )


def _in_an_hour(work: Work, invoice_id: UUID) -> datetime:
    return work.now + RETRY_DELAYS[-1] + jitter(invoice_id, within=PUT_OFF_JITTER)


async def pace(work: Work, state: IssuanceState) -> None:
    """Count a person's retry of the issuance before the gateway is called. Refuse it if there were too many (D-113).

    Raises EngineError: `engine.rate_limited`.
    """
    until, wait = paced_retry(state.retry_paced_until, real_now=work.deps.clock())
    if wait:
        minutes = int(RETRY_GAP.total_seconds()) // 60
        raise EngineError(
            RATE_LIMITED,
            f"After {MAX_RETRIES} retries, an invoice's issuance may be retried every {minutes} minutes; find out why "
            "the retries fail.",
            retry_after_seconds=math.ceil(wait.total_seconds()),
        )
    await issuance_state.pace_retries(work.tx, state.invoice_id, until=until)


async def refuse_unsent(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, refusal: EngineError
) -> None:
    """Mark a charge as failed, because `refusal` forbids sending its request (D-49, D-176, D-227)."""
    await charges.save_sending(work.tx, [charge], call_ends_at=None)
    if refusal.problem is CUSTOMER_ERASED:
        await erased_rows.charges(work.tx, [charge.invoice_id])
    code = refusal.problem.type.removeprefix("engine.")
    await _stop(work, invoice, charge, stage=ChargeStage.FAILED, code=code, detail=refusal.detail)


async def refuse(work: Work, call: GatewayCall, *, code: str, detail: str) -> None:
    """Mark a charge as failed, because the gateway refused its request."""
    await _stop(work, call.invoice, call.charge, stage=ChargeStage.FAILED, code=code, detail=detail)


async def park(
    work: Work, call: GatewayCall, *, code: str, detail: str, gateway_id: str | None = None
) -> None:
    """Park a charge. If a charge at the gateway is the cause, `gateway_id` is that charge's id."""
    stage = ChargeStage.PARKED
    await _stop(work, call.invoice, call.charge, stage=stage, code=code, detail=detail, gateway_id=gateway_id)


async def _stop(
    work: Work,
    invoice: ClaimedInvoice,
    charge: InvoiceCharge,
    *,
    stage: ChargeStage,
    code: str,
    detail: str,
    gateway_id: str | None = None,
) -> None:
    """Mark a charge as failed or parked, and stop the issuance of its invoice.

    If the customer is erased, store no text of the gateway (D-229).
    """
    is_own_text = code == CUSTOMER_ERASED.type.removeprefix("engine.")
    if not is_own_text and await erasures.is_erased(work.tx, invoice.invoice_id):
        detail = ERASED
    closed_at = work.now if stage is ChargeStage.FAILED else None
    await charges.mark(work.tx, charge, stage, closed_at=closed_at, error_code=code, error_detail=detail)
    await claims.reschedule_issuance(
        work.tx,
        invoice,
        next_attempt_at=None,
        failures=0,
        failing_since=None,
        delay_emitted=False,
        error=IssueFailure(code, detail, work.now),
    )
    error = IssueErrorView(code=code, detail=detail, gateway_invoice_id=gateway_id or UNSET)
    await invoice_moves.alert(work, invoice.invoice_id, "invoice.issue_failed", error=error)
