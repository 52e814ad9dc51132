"""Cancel a charge at the gateway before its invoice is canceled, reissued or paid manually (D-27, D-51, D-52)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, auto
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import ChargeTerms, InvoiceCharge
from fatura.domain.errors import EngineError, Problem, account_suspended, require
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways import port
from fatura.observability import log
from fatura.store.billing import payment_entries
from fatura.store.charging import charge_polling, charges, issuance_state
from fatura.store.charging.charges import CallHold
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.charging.merchant_requests import ManualPayment, MerchantRequest
from fatura.store.connections import connections
from fatura.store.restore import frozen_accounts
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.billing import invoices
from fatura.usecases.connections import charge_calls, connection_health, gateway_connections
from fatura.usecases.connections.charge_calls import CallsAbout
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, StoredAnswer, abandon, finish, pause
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import gateway_payments, merchant_requests, replacement
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.reconciliation import polling
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.invoices import InvoiceView

POLL_AFTER = timedelta(seconds=port.CALL_TIMEOUT_SECONDS + 10)
"""Delay before the charge is polled if this process dies during the call."""
SEND_WITHIN_SECONDS = 10
"""Maximum time between reserving and sending, so that the call ends before `in_progress_until`."""
assert merchant_requests.IN_PROGRESS_FOR.total_seconds() >= SEND_WITHIN_SECONDS + port.CALL_TIMEOUT_SECONDS
_UNREADABLE = (
    "The gateway connection's credentials cannot be decrypted; send them again, then repeat the request."
)
REPLACED = (
    "A later request replaces this one, unless the gateway refuses that one; read the invoice in a minute."
)
_LATE = "This Fatura was interrupted before it could cancel the charge, and sent nothing; try again."

Answer = port.Charge | port.GatewayError | TimeoutError


@dataclass(frozen=True, slots=True)
class Reserved:
    """The call to make after the transaction: ask `gateway` to cancel the confirmed `charge`.

    `reserved_at` is real time, and `send_before` is on the process's monotonic clock. `hold` makes a suspension
    of the account wait for the call, even if a poll ends the merchant's request meanwhile (D-242).
    """

    gateway: ObservedGateway
    charge: InvoiceCharge
    hold: CallHold
    reserved_at: datetime
    send_before: float

    def is_late(self, real_now: datetime) -> bool:
        """Return whether it is too late to send the call, because the process stood still.

        Both clocks are read, because either may stop while the machine is suspended.
        """
        waited = real_now - self.reserved_at
        return waited > timedelta(seconds=SEND_WITHIN_SECONDS) or time.monotonic() > self.send_before


@dataclass(frozen=True, slots=True)
class Begun:
    """A merchant's request that is stored and waits for the cancellation of the invoice's charge.

    `reserved` is the call that cancels the charge. `request` is the stored request. `previous` is the version of this
    request that an earlier attempt stored, if any.
    """

    reserved: Reserved
    request: MerchantRequest
    previous: MerchantRequest | None


@dataclass(frozen=True, slots=True)
class Released:
    """A charge that the gateway has canceled or closed; `state` is CANCELED or EXPIRED."""

    charge: InvoiceCharge
    state: port.ChargeState


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway did not confirm that it canceled a charge, or was not asked.

    With `is_unsure`, the gateway's answer was lost, so the gateway may have canceled the charge.
    """

    detail: str
    is_unsure: bool


async def reserve(work: Work, charge: InvoiceCharge, *, places: Places, refusal: Problem) -> Reserved:
    """Schedule a poll of a confirmed charge in case this process dies, and return what `release` needs.

    Count the call as open in `places` (D-175). The caller must not end the `places` block before `release` returns. An
    inactive connection is called too.
    Raises EngineError: `refusal` if the connection's credentials cannot be decrypted; `engine.account_suspended`; the
    errors of `Places.take`.
    """
    # check this again: the account may have been suspended after the request was admitted
    if not await frozen_accounts.may_charge(work.tx):
        raise account_suspended()
    places.take(1)
    stored = await connections.find(work.tx, charge.connection_id)
    assert stored is not None, "a charge's connection exists"
    gateway = gateway_connections.open_gateway(work, stored)
    if gateway is None:
        raise EngineError(refusal, _UNREADABLE)
    real_now = work.deps.clock()
    await charge_polling.make_due(work.tx, charge.invoice_id, at=work.now + POLL_AFTER, real_now=real_now)
    hold = await charges.hold(work.tx, charge.charge_id, until=real_now + merchant_requests.IN_PROGRESS_FOR)
    return Reserved(gateway, charge, hold, real_now, time.monotonic() + SEND_WITHIN_SECONDS)


async def begin(
    work: Work,
    charge: InvoiceCharge,
    request_id: UUID,
    *,
    terms: ChargeTerms | None = None,
    payment: ManualPayment | None = None,
    places: Places,
    refusal: Problem,
) -> Begun:
    """Store a request, and reserve the call that cancels its charge. Return both.

    Raises EngineError: the errors of `reserve`.
    """
    reserved = await reserve(work, charge, places=places, refusal=refusal)
    assert work.draft is not None, "a merchant asked for it"
    request = MerchantRequest(
        invoice_id=charge.invoice_id,
        charge_id=charge.charge_id,
        request_id=request_id,
        number=0,
        requested_at=work.now,
        in_progress_until=work.deps.clock() + merchant_requests.IN_PROGRESS_FOR,
        asked_by=work.draft.origin,
        terms=terms,
        payment=payment,
    )
    stored, previous = await merchant_requests.store(work, request)
    return Begun(reserved, stored, previous)


async def read_applied(work: Work, *, invoice_id: UUID) -> InvoiceView:
    """Return the invoice of a request that a poll has applied. The poll has added the audit entry."""
    work.audit_nothing()
    return await invoices.read(work, invoice_id)


def replaced(refusal: Problem) -> EngineError:
    """Return the error for a request that a later request replaces.

    If the later request fails, a poll can still apply the replaced request. So the Idempotency-Key of the replaced
    request stays reserved for repeats.
    """
    return EngineError(refusal, REPLACED, retry_after_seconds=60)


async def complete(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    begun: Begun,
    *,
    function: Callable[[Work], Awaitable[InvoiceView]],
    draft: AuditDraft | None,
) -> StoredAnswer:
    """Run `function` after the gateway has canceled the charge, and store the answer.

    `function` applies the merchant's request. If it raises an EngineError, schedule an immediate poll of the charge and
    raise the error again. The poll applies the newest stored request.
    """
    try:
        return await finish(deps, account, request, function, draft=draft)
    except EngineError:
        await in_transaction(deps, account, _end_uncompleted, begun.request)
        raise


async def _end_uncompleted(work: Work, stored: MerchantRequest) -> None:
    await issuance_state.lock(work.tx, stored.invoice_id)
    await merchant_requests.end_attempt(work, stored)
    await polling.poll_now(work, stored.invoice_id)


class Ending(StrEnum):
    """The state of a merchant's request after the gateway did not confirm that the charge is canceled.

    APPLIED: a poll has applied the request. KEPT: the request stays stored. DROPPED: the request is not stored any
    more.
    """

    APPLIED = auto()
    KEPT = auto()
    DROPPED = auto()


async def give_up(work: Work, request: IdempotentRequest | None, begun: Begun, *, is_unsure: bool) -> Ending:
    """End an attempt after the gateway did not confirm that the charge is canceled.

    The client can repeat the request afterwards. With `is_unsure`, the gateway's answer was lost, and a poll may find
    the charge canceled. If a poll has already applied the request, return APPLIED and change nothing. Otherwise,
    schedule a poll. If the request stays stored or the answer was lost, keep the Idempotency-Key reserved for a repeat
    of this request.
    """
    invoice_id = begun.request.invoice_id
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    if await _is_applied(work, begun.request, state):
        return Ending.APPLIED
    if is_unsure:
        is_kept = await merchant_requests.end_unsure(work, begun.request)
    else:
        is_kept = await merchant_requests.end_refused(work, begun.request, previous=begun.previous)
    await (pause if is_unsure or is_kept else abandon)(work, request)
    if begun.request.is_cancellation or not is_unsure:
        await polling.poll_now(work, invoice_id)
    else:
        await charge_polling.make_due_by(work.tx, [invoice_id], at=[work.now + POLL_AFTER])
    return Ending.KEPT if is_kept else Ending.DROPPED


async def _is_applied(work: Work, request: MerchantRequest, state: IssuanceState) -> bool:
    """Return whether a poll has applied a request."""
    if request.terms is not None:
        return await charges.exists(work.tx, request.request_id)
    if request.payment is not None:
        return await payment_entries.exists(work.tx, request.request_id)
    return state.status is InvoiceStatus.CANCELED


async def release(
    deps: Deps,
    account: Account,
    reserved: Reserved,
    *,
    accepted: Container[port.ChargeState] = replacement.RELEASED,
) -> Released | Refused:
    """Ask the gateway to cancel a charge, and record the connection's health.

    If the gateway answers with the charge in one of the `accepted` states, also record the payments in the answer, and
    return Released. After any other answer, return Refused. Also return Refused, without a call, if this process stood
    still since `reserve`.
    """
    gateway, charge = reserved.gateway, reserved.charge
    assert charge.gateway_invoice_id is not None, "a reserved charge is confirmed"
    if reserved.is_late(deps.clock()):
        log.warning(
            "charge.cancellation_skipped", invoice_id=str(charge.invoice_id), reason="process stood still"
        )
        return Refused(_LATE, is_unsure=False)
    answer = await cancel(gateway, charge.gateway_invoice_id, invoice_id=charge.invoice_id)
    await in_transaction(deps, account, _end_hold, reserved)
    await connection_health.record(deps, account, [gateway])
    if isinstance(answer, port.Charge) and answer.state in accepted:
        await _record_payments(deps, account, gateway, answer)
        return Released(charge, answer.state)
    reason = answer.state if isinstance(answer, port.Charge) else answer
    log.warning("charge.cancellation_unconfirmed", invoice_id=str(charge.invoice_id), reason=reason)
    return Refused(_refusal(answer), is_unsure=isinstance(answer, port.UnknownOutcomeError | TimeoutError))


async def _end_hold(work: Work, reserved: Reserved) -> None:
    charge = reserved.charge
    await charges.end_hold(work.tx, charge.charge_id, reserved.hold)
    if charge.gateway_invoice_id is not None:
        await charge_calls.record(
            work, [CallsAbout(charge.charge_id, reserved.gateway, [charge.gateway_invoice_id])]
        )


async def cancel(gateway: port.Gateway, gateway_invoice_id: str, *, invoice_id: UUID) -> Answer:
    """Ask the gateway to cancel a charge of an invoice, and return the gateway's answer.

    Errors and timeouts are returned, not raised.
    """
    try:
        async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
            answer = await gateway.cancel_charge(gateway_invoice_id)
        return answer.of_invoice(invoice_id)
    except (port.GatewayError, TimeoutError) as error:
        return error


async def _record_payments(
    deps: Deps, account: Account, gateway: ObservedGateway, canceled: port.Charge
) -> None:
    """Record the payments that the gateway returned with a canceled charge (D-50).

    Otherwise, the engine could miss these payments: they may be newer than the most recent poll, and a canceled invoice
    is not polled regularly.
    """
    if canceled.entries:
        answers = [ChargeAnswer(canceled.invoice_id, gateway.connection_id, canceled)]
        await gateway_payments.record_ahead(deps, account, answers)
        due_again = {canceled.invoice_id}
        await in_transaction(deps, account, gateway_payments.record, answers, due_again=due_again)


def _refusal(answer: Answer) -> str:
    """Return the reason to show to the client, for an answer that does not confirm the cancellation."""
    match answer:
        case port.Charge(state=port.ChargeState.PAID):
            return "The charge has been paid; refund the payment instead."
        case port.Charge():
            return f"The gateway did not cancel the charge, which is {answer.state} there."
        case port.NotFoundError():
            return "The gateway does not know the invoice's charge; check it there."
        case port.AuthFailedError():
            return "The gateway refuses the connection's credentials; send new ones, then repeat the request."
        case port.PermanentError(detail=detail):
            return f"The gateway refuses to cancel the charge: {detail}"
        case _:
            return (
                "The gateway did not confirm that the charge is canceled; read the invoice, then try again."
            )
