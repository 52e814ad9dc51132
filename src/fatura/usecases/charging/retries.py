"""Put off the next call for an invoice, report an invoice that waits too long (D-34), and pace retries (D-113)."""

import math
from datetime import datetime, timedelta

from fatura.domain.charging import (
    ISSUE_DELAYED_AFTER,
    MAX_RETRIES,
    RETRY_DELAYS,
    RETRY_GAP,
    jitter,
    paced_retry,
    retry_delay,
)
from fatura.domain.errors import RATE_LIMITED, EngineError
from fatura.domain.gateway_health import CREDENTIALS_REFUSED, ConnectionHealth
from fatura.gateways.port import GatewayError
from fatura.store.charging import claims, issuance_state, waiting
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.charging.issuance_state import IssuanceState
from fatura.usecases.billing import invoice_moves
from fatura.usecases.transaction import Work
from fatura.views.events import IssueErrorView

PUT_OFF_JITTER = timedelta(minutes=6)
"""Maximum extra delay when an invoice that waits for its connection is put off by an hour.

The delay is computed from the invoice's id, and spreads many invoices over time.
"""


async def schedule(
    work: Work, invoice: ClaimedInvoice, *, at: datetime, error: GatewayError | None = None
) -> None:
    """Schedule the next call; emit `invoice.issue_delayed` once after an hour of failures (D-34)."""
    since = invoice.issue_failing_since or work.now
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


async def retry_later(work: Work, invoice: ClaimedInvoice, *, error: GatewayError) -> None:
    """Put an invoice off because its charge cannot be sent now."""
    await schedule(work, invoice, at=work.now + retry_delay(invoice.issue_failures + 1), error=error)


async def wait_for_connection(work: Work, invoice: ClaimedInvoice, code: str, *, detail: str) -> None:
    """Put the invoice off for an hour, or until its connection works again if that is earlier.

    Emit `invoice.issue_delayed` once (D-34).
    """
    await _put_off(work, invoice, IssueErrorView(code=code, detail=detail), is_late=True)


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


async def _put_off(work: Work, invoice: ClaimedInvoice, error: IssueErrorView, *, is_late: bool) -> None:
    if is_late and not invoice.issue_delay_emitted:
        await invoice_moves.alert(work, invoice.invoice_id, "invoice.issue_delayed", error=error)
    await claims.reschedule_issuance(
        work.tx,
        invoice,
        next_attempt_at=work.now + RETRY_DELAYS[-1] + jitter(invoice.invoice_id, within=PUT_OFF_JITTER),
        failures=invoice.issue_failures + 1,
        failing_since=invoice.issue_failing_since or work.now,
        delay_emitted=invoice.issue_delay_emitted or is_late,
    )
    await waiting.mark(work.tx, [invoice.invoice_id])


async def pace(work: Work, state: IssuanceState) -> None:
    """Count a person's retry that may call the gateway (D-113). Raises EngineError: `engine.rate_limited`."""
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
