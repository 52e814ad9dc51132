"""Reissue an invoice: cancel its charge at the gateway, then issue it again with another charge (D-51).

Call `release_charge`, then `reissue`. If the process dies in between, the charge is polled soon, and the poll continues
the reissue if the gateway has canceled the charge.
"""

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.calendar import latest_first_charge
from fatura.domain.charge import IN_DOUBT, ChargeStage, ChargeTerms, InvoiceCharge
from fatura.domain.connection import check_minimums, check_support
from fatura.domain.errors import (
    INVOICE_NOT_REISSUABLE,
    EngineError,
    account_recovering,
    invalid_fields,
    require,
)
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import open_cents
from fatura.gateways import port
from fatura.observability import log
from fatura.store.billing import payment_entries
from fatura.store.charging import charge_polling, issuance_state, refund_requests, reissue_requests
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.connections import connections
from fatura.store.restore import frozen_accounts
from fatura.usecases.billing import invoices
from fatura.usecases.connections import connection_health
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.merchant_actions import charge_release
from fatura.usecases.payments import merchant_requests, replacement
from fatura.usecases.reconciliation import polling
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.invoices import InvoiceView

MAX_CHARGES = 50
"""An invoice with this many charges is not reissued, because each poll reads all of them (D-176)."""
_UNSURE = "If the charge turns out to be canceled, the invoice is reissued automatically."


@dataclass(frozen=True, slots=True)
class Wanted:
    """The terms that the merchant wants for the next charge.

    Without a `due_date`, the charge is due today. Without a `payment_method`, the method does not change.
    Without `installments`, their number does not change. But if the method changes, the charge has one
    installment.
    """

    due_date: date | None
    payment_method: PaymentMethod | None
    installments: int | None


@dataclass(frozen=True, slots=True)
class Released:
    """A charge that the gateway has canceled or closed; `state` is CANCELED or EXPIRED."""

    charge: InvoiceCharge
    state: port.ChargeState


async def release_charge(deps: Deps, account: Account, invoice_id: UUID, wanted: Wanted) -> Released | None:
    """Cancel the newest charge of an invoice at the gateway; return None if no charge must be canceled.

    If the gateway does not confirm that the charge cannot be paid any more, raise
    `engine.invoice_not_reissuable`. If the gateway's answer was lost, a poll continues the reissue later,
    provided that the charge was canceled.
    Raises EngineError with the codes of `reissue`.
    """
    reserved = await in_transaction(deps, account, _reserve, invoice_id, wanted)
    if reserved is None:
        return None
    gateway, charge = reserved
    assert charge.gateway_invoice_id is not None, "the charge of an issued invoice is confirmed"
    answer = await charge_release.cancel(gateway, charge.gateway_invoice_id, invoice_id=invoice_id)
    await connection_health.record(deps, account, [gateway])
    if isinstance(answer, port.Charge) and answer.state in replacement.RELEASED:
        await charge_release.record_payments(deps, account, gateway, answer)
        return Released(charge, answer.state)
    refusal = charge_release.refusal(answer)
    log.warning("charge.cancellation_unconfirmed", invoice_id=str(invoice_id), reason=refusal)
    if isinstance(answer, port.UnknownOutcomeError | TimeoutError):
        # the charge may be canceled although the answer was lost, so the poll that `_reserve` scheduled decides
        raise EngineError(INVOICE_NOT_REISSUABLE, f"{refusal} {_UNSURE}")
    await in_transaction(deps, account, _drop, invoice_id)
    raise EngineError(INVOICE_NOT_REISSUABLE, refusal)


async def reissue(work: Work, invoice_id: UUID, wanted: Wanted, *, released: Released | None) -> InvoiceView:
    """Plan the next charge of an invoice, move the invoice to `ready` and return it.

    `released` is the result of `release_charge`.
    Raises EngineError: `engine.invalid_request` (dueDate), `engine.not_found`, `engine.invoice_not_reissuable`,
    `engine.account_recovering`, `engine.payment_method_unsupported`, `engine.installments_unsupported`,
    `engine.amount_unsupported`.
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    if released is not None and _is_done(work, state, wanted, released):
        return await invoices.read(work, invoice_id)  # a poll has continued the reissue meanwhile
    charge, terms = await _check(work, state, wanted)
    if charge.is_unpaid_at_gateway:
        if released is None or released.charge.charge_id != charge.charge_id:
            detail = "The invoice was issued while it was being reissued; read it, then try again."
            raise EngineError(INVOICE_NOT_REISSUABLE, detail)
        await replacement.release(work, charge, released.state)
    else:
        await _check_refunds(work, invoice_id)
    assert state.total_cents is not None, "an invoice with a charge has a total"
    await replacement.replace(work, charge, terms, total_cents=state.total_cents)
    return await invoices.read(work, invoice_id)


async def _reserve(
    work: Work, invoice_id: UUID, wanted: Wanted
) -> tuple[ObservedGateway, InvoiceCharge] | None:
    """Store the request, and return the gateway and the charge to cancel.

    Schedule a poll in case this process dies. Return None if no charge must be canceled.
    """
    _check_due_date(work, wanted.due_date)
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    charge, terms = await _check(work, state, wanted)
    await _check_refunds(work, invoice_id)
    if not charge.is_unpaid_at_gateway:
        return None
    gateway = await charge_release.open_gateway(work, state.connection_id)
    if gateway is None:
        raise EngineError(INVOICE_NOT_REISSUABLE, charge_release.UNREADABLE)
    await merchant_requests.drop(work, [invoice_id])
    until = work.deps.clock() + merchant_requests.IN_PROGRESS_FOR
    await reissue_requests.save(work.tx, charge, terms, in_progress_until=until)
    await charge_polling.make_due(work.tx, invoice_id, at=work.now + charge_release.POLL_AFTER)
    return gateway, charge


async def _drop(work: Work, invoice_id: UUID) -> None:
    await reissue_requests.remove(work.tx, [invoice_id])
    await polling.poll_now(work, invoice_id)


def _check_due_date(work: Work, due_date: date | None) -> None:
    latest = latest_first_charge(work.today)
    if due_date is not None and not work.today <= due_date <= latest:
        raise invalid_fields(("dueDate", f"must lie between {work.today} (today) and {latest}"))


async def _check(work: Work, state: IssuanceState, wanted: Wanted) -> tuple[InvoiceCharge, ChargeTerms]:
    """Return the newest charge of an invoice that may be reissued, and the terms of the next one."""
    if not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    refusal = _refusal(state, real_now=work.deps.clock())
    if refusal is not None:
        raise EngineError(INVOICE_NOT_REISSUABLE, refusal)
    charge = state.charge
    assert charge is not None, "an invoice without a charge is not reissuable"
    if charge.number >= MAX_CHARGES:
        detail = (
            f"The invoice has {MAX_CHARGES} charges, which is the maximum; cancel it, or record its payment."
        )
        raise EngineError(INVOICE_NOT_REISSUABLE, detail)
    stored = await connections.find(work.tx, state.connection_id)
    assert stored is not None, "an invoice's connection exists"
    if not stored.connection.active:
        detail = "The gateway connection is inactive; activate it, then reissue the invoice."
        raise EngineError(INVOICE_NOT_REISSUABLE, detail)
    terms = _terms(work, charge, wanted)
    check_support(
        terms.payment_method,
        wanted.installments or terms.installments or 1,
        connections=[stored.connection],
        field="installments",
    )
    assert state.total_cents is not None, "an invoice with a charge has a total"
    ledgers = await payment_entries.of_invoices(work.tx, [state.invoice_id])
    due_cents = open_cents(ledgers.get(state.invoice_id, ()), total_cents=state.total_cents)
    check_minimums(stored.connection, due_cents, installments=terms.installments)
    return charge, terms


async def _check_refunds(work: Work, invoice_id: UUID) -> None:
    """Refuse a reissue while a refund is pending: the refund's outcome decides the amount of the next charge."""
    if await refund_requests.has_open(work.tx, invoice_id):
        detail = "A refund of the invoice is pending; wait until it is done or failed."
        raise EngineError(INVOICE_NOT_REISSUABLE, detail)


def _terms(work: Work, charge: InvoiceCharge, wanted: Wanted) -> ChargeTerms:
    method = wanted.payment_method or charge.payment_method
    installments = wanted.installments
    if installments is None and method is charge.payment_method:
        installments = charge.installments
    is_split = method is PaymentMethod.CARD and installments is not None and installments > 1
    return ChargeTerms(
        method, installments if is_split else None, max(wanted.due_date or work.today, work.today)
    )


def _is_done(work: Work, state: IssuanceState, wanted: Wanted, released: Released) -> bool:
    """Return whether a poll has already continued this reissue, with the same terms for the next charge."""
    charge, before = state.charge, released.charge
    return (
        charge is not None
        and charge.number == before.number + 1
        and state.status is not InvoiceStatus.CANCELED
        and charge.terms == _terms(work, before, wanted)
    )


def _refusal(state: IssuanceState, *, real_now: datetime) -> str | None:
    stage = None if state.charge is None else state.charge.stage
    match state.status:
        case InvoiceStatus.ISSUED | InvoiceStatus.OVERDUE:
            return None
        case InvoiceStatus.READY if stage is ChargeStage.FAILED and not state.is_leased(real_now):
            return None
        case InvoiceStatus.READY if stage is ChargeStage.PARKED:
            return "Nobody knows whether the gateway holds a charge of the invoice; check there, then retry issuance."
        case InvoiceStatus.READY if stage in IN_DOUBT:
            return "The invoice is being issued; read it again in a minute."
        case InvoiceStatus.READY:
            return "The invoice waits to be issued; it gets its charge automatically."
        case InvoiceStatus.DRAFT | InvoiceStatus.AWAITING_VALUE:
            return "The invoice waits for its values and has no charge yet."
        case InvoiceStatus.PAID:
            return "The invoice is paid."
        case InvoiceStatus.CANCELED:
            return "The invoice is canceled."
