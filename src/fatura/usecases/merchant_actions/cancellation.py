"""Cancel an invoice. If it has a charge, the gateway must cancel the charge first (D-27).

Call `release_charge`, then `cancel`. If the process dies in between, the charge is polled soon, and the client may
repeat the request.
"""

from datetime import datetime
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import IN_DOUBT, ChargeStage
from fatura.domain.errors import INVOICE_NOT_CANCELABLE, EngineError, account_recovering, require
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.gateways import port
from fatura.store.charging import charges, issuance_state
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.restore import frozen_accounts
from fatura.usecases.billing import invoice_moves, invoices
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.deps import Deps
from fatura.usecases.merchant_actions import charge_release
from fatura.usecases.merchant_actions.charge_release import Refused, Released, Reserved
from fatura.usecases.payments import merchant_requests, replacement
from fatura.usecases.reconciliation import polling
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.invoices import InvoiceView

WITH_CHARGE = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE)


async def release_charge(deps: Deps, account: Account, invoice_id: UUID) -> Released | None:
    """Cancel the charge of an issued or overdue invoice at the gateway.

    Return None for an invoice in another status, and for a charge that polls no longer found at the gateway
    (D-56). If the gateway does not confirm the cancellation, poll the charge immediately and raise
    `engine.invoice_not_cancelable`.
    Raises EngineError: `engine.not_found`, `engine.invoice_not_cancelable`, `engine.account_recovering`.
    """
    reserved = await in_transaction(deps, account, _reserve, invoice_id)
    if reserved is None:
        return None
    released = await charge_release.release(deps, account, reserved, accepted=(port.ChargeState.CANCELED,))
    if isinstance(released, Refused):
        await in_transaction(deps, account, polling.poll_now, invoice_id)
        raise EngineError(INVOICE_NOT_CANCELABLE, released.detail)
    return released


async def cancel(work: Work, invoice_id: UUID, *, released: Released | None) -> InvoiceView:
    """Move an invoice to `canceled` and return it; `released` is the result of `release_charge` (D-27).

    Raises EngineError: `engine.not_found`, `engine.invoice_not_cancelable`, `engine.account_recovering`.
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    if not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    charge = state.charge
    is_released = (
        released is not None and charge is not None and charge.charge_id == released.charge.charge_id
    )
    if state.status is InvoiceStatus.CANCELED and is_released:
        return await invoices.read(work, invoice_id)  # a poll has recorded the cancellation meanwhile
    if not (is_released and state.status in WITH_CHARGE):
        refusal = _refusal(state, real_now=work.deps.clock())
        if refusal is not None:
            raise EngineError(INVOICE_NOT_CANCELABLE, refusal)
    if released is not None and is_released:
        await replacement.release(work, released.charge, released.state)
    await charges.close_unsent(work.tx, [invoice_id], now=work.now)
    await merchant_requests.drop(work, [invoice_id])
    await invoice_moves.report(work, [Report(invoice_id, Fact.CANCEL_REQUESTED)])
    return await invoices.read(work, invoice_id)


async def _reserve(work: Work, invoice_id: UUID) -> Reserved | None:
    """Return the charge to cancel; schedule a poll in case this process dies."""
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    if state.status not in WITH_CHARGE:
        return None
    if not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    charge = state.charge
    assert charge is not None, "an issued invoice has a charge"
    if charge.stage is ChargeStage.MISSING:
        return None
    await work.refresh()
    if await merchant_requests.is_in_progress(work, invoice_id):
        detail = "A reissue or a payment of the invoice is in progress; read the invoice again in a minute."
        raise EngineError(INVOICE_NOT_CANCELABLE, detail)
    await merchant_requests.drop(work, [invoice_id])  # otherwise a poll could continue an earlier reissue
    return await charge_release.reserve(work, charge, refusal=INVOICE_NOT_CANCELABLE)


def _refusal(state: IssuanceState, *, real_now: datetime) -> str | None:
    stage = None if state.charge is None else state.charge.stage
    match state.status:
        case InvoiceStatus.PAID:
            return "The invoice is paid; refund the payment instead."
        case InvoiceStatus.CANCELED:
            return "The invoice is canceled already."
        case InvoiceStatus.ISSUED | InvoiceStatus.OVERDUE if stage is ChargeStage.MISSING:
            return None
        case InvoiceStatus.ISSUED | InvoiceStatus.OVERDUE:
            return "The invoice was issued while it was being canceled; cancel it again."
        case InvoiceStatus.READY if stage is ChargeStage.PARKED:
            return (
                "It is not known whether the gateway holds a charge of the invoice; check there and cancel one that "
                "you find, then retry issuance."
            )
        case InvoiceStatus.READY if stage in IN_DOUBT or state.is_leased(real_now):
            return "The invoice is being issued; read it again in a minute, and cancel it then."
        case InvoiceStatus.DRAFT | InvoiceStatus.AWAITING_VALUE if stage in IN_DOUBT:
            return "The gateway holds a charge of the invoice; release its items, then cancel it."
        case _:
            return None
