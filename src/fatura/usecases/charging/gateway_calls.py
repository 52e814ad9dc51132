"""The middle beat of issuing: one call to a gateway, with no transaction open, for one reserved invoice (D-33)."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fatura.domain.account import Account
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
from fatura.store.charging.charges import ClaimedInvoice, NewAttempt
from fatura.store.subscriptions import customers
from fatura.store.vault import KeyRingError
from fatura.usecases.charging import outcomes
from fatura.usecases.deps import Deps

SEND_WITHIN_SECONDS = 30
"""A worker that was frozen sends nothing later than this after reserving: its lease outlasts this and the call."""


@dataclass(frozen=True, slots=True)
class Job:
    """One reserved invoice: to be sent, or (`look_up`) to be asked after since an earlier outcome is unknown.

    With `repeats_sent_at` the same call is sent again, since the gateway would know it: the one sent then may have made
    the charge.
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
    repeats_sent_at: datetime | None = None
    known_charge_ids: Sequence[str] = ()


async def look_up(job: Job) -> Charge | None:
    """Ask whether an earlier sending made the charge. Raises GatewayError, TimeoutError."""
    if job.known_charge_ids:
        return await _known_charge(job)
    if job.gateway.capabilities().idempotency == "none":
        raise outcomes.CannotBeKnownError
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
        raise outcomes.SeveralChargesError(", ".join(charge.charge_id for charge in live))
    return (live or found)[0]


async def send(deps: Deps, account: Account, job: Job) -> Charge:
    """Create the charge, unless this worker stood still for too long. Raises GatewayError."""
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
        if job.repeats_sent_at is None:
            raise
        made = await job.gateway.find_charge(request.invoice_id, request.attempt)
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
