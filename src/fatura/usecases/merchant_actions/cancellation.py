"""Cancel an invoice. If it has a charge, the gateway must cancel the charge first (D-27).

The request's Idempotency-Key is committed before the gateway is called. If the process dies afterwards, the charge is
polled soon, and a repeat with the same key continues the cancellation.
"""

from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.audit_actions import INVOICE_CANCEL
from fatura.domain.charge import IN_DOUBT, UNPAID, ChargeStage
from fatura.domain.errors import INVOICE_NOT_CANCELABLE, EngineError, account_recovering, require
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.gateways import port
from fatura.store.audit import entries
from fatura.store.charging import charges, issuance_state
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.charging.merchant_requests import MerchantRequest
from fatura.store.restore import frozen_accounts
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.billing import invoice_moves, invoices
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import (
    IdempotentRequest,
    StoredAnswer,
    begin,
    finish,
    was_begun,
)
from fatura.usecases.merchant_actions import charge_release
from fatura.usecases.merchant_actions.charge_release import Begun, Ending, Refused, Released
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import gateway_payments, merchant_requests, replacement, second_charges
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.invoices import InvoiceView
from fatura.views.view import View

WITH_CHARGE = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE)


async def cancel(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    invoice_id: UUID,
    *,
    draft: AuditDraft,
) -> StoredAnswer:
    """Cancel an invoice, and answer with the canceled invoice.

    If the invoice is issued or overdue, first cancel its charge (D-27). Two kinds of charges need no cancellation,
    because a payer can no longer pay them: a charge that is missing at the gateway (D-56), and a paid charge whose
    amount was only a part of the total. If the gateway does not confirm that the charge is canceled, poll the charge
    immediately and raise `engine.invoice_not_cancelable`.
    Raises EngineError: `engine.not_found`, `engine.invoice_not_cancelable`, `engine.account_recovering`,
    `engine.account_suspended`; the errors of `begin` and of `Places.take`.
    """
    with deps.gateway_requests.places(account.account_id) as places:
        reserve = partial(_reserve, request=request, invoice_id=invoice_id, places=places)
        begun = await begin(
            deps,
            account,
            request,
            reserve,
            draft=draft,
            in_progress_for=merchant_requests.IN_PROGRESS_FOR,
        )
        if isinstance(begun, StoredAnswer):
            return begun
        accepted = (port.ChargeState.CANCELED,)
        released = await charge_release.release(deps, account, begun.reserved, accepted=accepted)
    if isinstance(released, Refused):
        give_up = partial(charge_release.give_up, is_unsure=released.is_unsure)
        ending = await in_transaction(deps, account, give_up, request, begun)
        if ending is Ending.APPLIED:
            read = partial(_read_canceled, invoice_id=invoice_id)
            return await finish(deps, account, request, read, draft=draft)
        detail = released.detail
        if ending is Ending.KEPT:
            detail += await in_transaction(deps, account, _about_other_requests, begun.request)
        raise EngineError(INVOICE_NOT_CANCELABLE, detail)
    complete = partial(_complete, stored=begun.request, released=released)
    return await charge_release.complete(deps, account, request, begun, function=complete, draft=draft)


async def _reserve(
    work: Work, *, request: IdempotentRequest | None, invoice_id: UUID, places: Places
) -> Begun | View:
    """Store the request, and return the call that cancels the charge. Schedule a poll in case this process dies.

    If no charge must be canceled, cancel the invoice and return it.
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    if state.status is InvoiceStatus.CANCELED and await was_begun(work, request):
        return await _read_canceled(work, invoice_id=invoice_id)
    if not await frozen_accounts.may_record(work.tx):
        raise account_recovering()
    charge = state.charge
    if merchant_requests.is_in_progress(
        work, await merchant_requests.of_invoice(work, invoice_id), other_than=None
    ):
        detail = "A reissue or a payment of the invoice is in progress; read the invoice again in a minute."
        raise EngineError(INVOICE_NOT_CANCELABLE, detail)
    if state.status not in WITH_CHARGE or (charge is not None and not charge.is_unpaid_at_gateway):
        _check_state(work, state)
        return await _cancel(work, state)
    assert charge is not None, "an issued invoice has a charge"
    tagger = work.deps.tagger
    request_id = (
        work.new_id() if request is None else tagger.request_id("cancel", invoice_id, key=request.key)
    )
    return await charge_release.begin(work, charge, request_id, places=places, refusal=INVOICE_NOT_CANCELABLE)


async def _about_other_requests(work: Work, request: MerchantRequest) -> str:
    """Return a sentence that warns of another stored request, or "" if there is none (D-171).

    The engine may apply the other request instead of this cancellation.
    """
    if await merchant_requests.is_replaced(work, request):
        return f" {charge_release.REPLACED}"
    stored = await merchant_requests.of_invoice(work, request.invoice_id)
    earlier = next((each for each in stored if not each.is_cancellation), None)
    if earlier is None:
        return ""
    what, applied = ("payment", "recorded") if earlier.terms is None else ("reissue", "applied")
    hours = merchant_requests.KEPT_FOR // timedelta(hours=1)
    return (
        f" An earlier {what} of the invoice waits for its charge too. It is {applied} if the charge expires within "
        f"{hours} hours instead of being canceled."
    )


async def _complete(work: Work, *, stored: MerchantRequest, released: Released) -> InvoiceView:
    """Cancel the invoice after its charge was canceled, and return the invoice."""
    invoice_id = stored.invoice_id
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    if not await frozen_accounts.may_record(work.tx):
        raise account_recovering()
    is_released = state.charge is not None and state.charge.charge_id == released.charge.charge_id
    if state.status is InvoiceStatus.CANCELED and is_released:
        return await _read_canceled(work, invoice_id=invoice_id)
    if not (is_released and state.status in WITH_CHARGE):
        _check_state(work, state)
    if not is_released:
        detail = "The invoice was reissued while it was being canceled; read it, then cancel it again."
        raise EngineError(INVOICE_NOT_CANCELABLE, detail)
    if await merchant_requests.is_replaced(work, stored):
        raise charge_release.replaced(INVOICE_NOT_CANCELABLE)
    await replacement.release(work, released.charge, released.state)
    # a canceled invoice without payments is not polled, so late look-ups read the canceled charge
    await second_charges.plan_checks(work, [released.charge.charge_id])
    return await _cancel(work, state)


async def _read_canceled(work: Work, *, invoice_id: UUID) -> InvoiceView:
    """Return an invoice that a poll has canceled.

    If the poll applied a stored request, the poll has added the audit entry. Otherwise, add the entry now.
    """
    if await entries.exists(work.tx, action=INVOICE_CANCEL.name, resource_id=str(invoice_id)):
        work.audit_nothing()
    else:
        work.audit(invoice_id, before={}, after={"status": InvoiceStatus.CANCELED})
    return await invoices.read(work, invoice_id)


async def _cancel(work: Work, state: IssuanceState) -> InvoiceView:
    invoice_id = state.invoice_id
    await charges.close_unsent(work.tx, [invoice_id], now=work.now)
    await merchant_requests.drop(work, [invoice_id])
    await invoice_moves.report(work, [Report(invoice_id, Fact.CANCEL_REQUESTED)])
    await gateway_payments.plan_polls(work, [invoice_id])
    work.audit(invoice_id, before={"status": state.status}, after={"status": InvoiceStatus.CANCELED})
    return await invoices.read(work, invoice_id)


def _check_state(work: Work, state: IssuanceState) -> None:
    refusal = _refusal(state, real_now=work.deps.clock())
    if refusal is not None:
        raise EngineError(INVOICE_NOT_CANCELABLE, refusal)


def _refusal(state: IssuanceState, *, real_now: datetime) -> str | None:
    stage = None if state.charge is None else state.charge.stage
    match state.status:
        case InvoiceStatus.PAID:
            return "The invoice is paid; refund the payment instead."
        case InvoiceStatus.CANCELED:
            return "The invoice is canceled already."
        case InvoiceStatus.ISSUED | InvoiceStatus.OVERDUE if stage is not None and stage not in UNPAID:
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
