"""Putting the issuing of an invoice off, or leaving it to a person, and telling so (D-34)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fatura.domain.charging import ISSUE_DELAYED_AFTER, RETRY_DELAYS, AttemptState
from fatura.gateways.port import GatewayError
from fatura.store.charging import charges
from fatura.store.charging.charges import ClaimedInvoice, NewAttempt
from fatura.usecases.billing import invoice_moves
from fatura.usecases.transaction import Work


@dataclass(frozen=True, slots=True)
class Tried:
    """What was tried: the attempt as it was reserved, by a call to create or (`looked_up`) by a look-up.

    `asked_at` is when it was reserved, on the account's clock; its answer may be older than its recording by any time.
    A call may be a repeat after an answer was lost: then a failure says nothing of what the one before did, which was
    sent at `repeats_sent_at`.
    """

    claimed: ClaimedInvoice
    attempt: NewAttempt
    sent_at: datetime
    asked_at: datetime
    looked_up: bool
    repeats_sent_at: datetime | None = None
    known_charge_ids: Sequence[str] = ()


async def give_up(work: Work, tried: Tried, state: AttemptState, *, code: str, detail: str) -> None:
    """Stop until a person acts: the invoice stays `ready` and its reason is told (D-34)."""
    attempt = tried.attempt
    await charges.settle_attempt(
        work.tx, attempt.invoice_id, attempt.attempt, state=state, error_code=code, error_detail=detail
    )
    await charges.reschedule_issue(
        work.tx,
        attempt.invoice_id,
        claimed_for=tried.claimed.next_attempt_at,
        next_attempt_at=None,
        failures=0,
        failing_since=None,
        delay_emitted=False,
    )
    error: dict[str, object] = {"code": code, "message": detail}
    await invoice_moves.alert(work, attempt.invoice_id, "invoice.issue_failed", error=error)


async def wait_for_connection(work: Work, claimed: ClaimedInvoice, code: str, *, message: str) -> None:
    """Tell once that the connection holds the invoice up, and go on by itself when it is mended (D-34)."""
    if not claimed.issue_delay_emitted:
        error: dict[str, object] = {"code": code, "message": message}
        await invoice_moves.alert(work, claimed.invoice_id, "invoice.issue_delayed", error=error)
    await charges.reschedule_issue(
        work.tx,
        claimed.invoice_id,
        claimed_for=claimed.next_attempt_at,
        next_attempt_at=work.now + RETRY_DELAYS[-1],
        failures=claimed.issue_failures + 1,
        failing_since=claimed.issue_failing_since or work.now,
        delay_emitted=True,
    )


async def retry(work: Work, tried: Tried, *, next_attempt_at: datetime, error: GatewayError | None) -> None:
    """Try again later, for ever; tell once when that has lasted an hour (D-34)."""
    claimed = tried.claimed
    since = claimed.issue_failing_since or work.now
    late = work.now - since >= ISSUE_DELAYED_AFTER
    if late and not claimed.issue_delay_emitted:
        message = str(error) if error else "The gateway does not know the charge yet."
        told: dict[str, object] = {"code": "retrying", "message": message}
        await invoice_moves.alert(work, claimed.invoice_id, "invoice.issue_delayed", error=told)
    await charges.reschedule_issue(
        work.tx,
        claimed.invoice_id,
        claimed_for=claimed.next_attempt_at,
        next_attempt_at=next_attempt_at,
        failures=claimed.issue_failures + (1 if error else 0),
        failing_since=since,
        delay_emitted=claimed.issue_delay_emitted or late,
    )
