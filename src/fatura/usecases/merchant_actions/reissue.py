"""Reissue an invoice: cancel its charge at the gateway, then issue the invoice again with another charge (D-51).

The merchant's request and its Idempotency-Key are committed before the gateway is called. If the process dies
afterwards, and the gateway has canceled the charge, a poll continues the reissue. The id of the next charge is derived
from the key, so a repeat with the same key finds that charge.
"""

from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
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
from fatura.store.billing import payment_entries
from fatura.store.charging import charges, issuance_state, refund_requests
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.charging.merchant_requests import MerchantRequest
from fatura.store.connections import connections
from fatura.store.restore import frozen_accounts
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.billing import invoices
from fatura.usecases.charging import next_charge, retries
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, StoredAnswer, begin, finish, key_reused
from fatura.usecases.merchant_actions import charge_release
from fatura.usecases.merchant_actions.charge_release import Begun, Ending, Refused, Released
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import merchant_requests, replacement
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.invoices import InvoiceView
from fatura.views.view import View

_UNSURE = " If the charge turns out to be canceled, the invoice is reissued automatically."


@dataclass(frozen=True, slots=True)
class Wanted:
    """The terms that the merchant wants for the next charge.

    Without a `due_date`, the charge is due today. Without a `payment_method`, the method does not change. Without
    `installments`, their number does not change, or is one if the method changes.
    """

    due_date: date | None
    payment_method: PaymentMethod | None
    installments: int | None

    def may_be(self, planned: InvoiceCharge | ChargeTerms) -> bool:
        """Return whether a request for these terms may have planned this charge, or was stored with these terms.

        The charge's due date may be later than the wanted one, because the engine postpones a due date that has passed.
        """
        return (
            self.payment_method in {None, planned.payment_method}
            and self.installments in {None, planned.installments or 1}
            and (self.due_date is None or self.due_date <= planned.due_date)
        )


async def reissue(
    deps: Deps,
    account: Account,
    request: IdempotentRequest,
    invoice_id: UUID,
    *,
    wanted: Wanted,
    draft: AuditDraft,
) -> StoredAnswer:
    """Cancel the charge of an invoice, plan the next charge, and answer with the invoice, which is `ready`.

    If the gateway does not confirm that the charge is canceled or expired, raise `engine.invoice_not_reissuable`. If
    the gateway's answer was lost, a poll continues the reissue later, provided that the charge was canceled.
    Raises EngineError: `engine.invalid_request` (dueDate), `engine.not_found`, `engine.invoice_not_reissuable`,
    `engine.account_recovering`, `engine.account_suspended`, `engine.payment_method_unsupported`,
    `engine.installments_unsupported`, `engine.amount_unsupported`, `engine.rate_limited`; the errors of `begin` and of
    `Places.take`.
    """
    next_charge_id = deps.tagger.request_id("reissue", invoice_id, key=request.key)
    with deps.gateway_requests.places(account.account_id) as places:
        reserve = partial(
            _reserve, invoice_id=invoice_id, wanted=wanted, next_charge_id=next_charge_id, places=places
        )
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
        released = await charge_release.release(deps, account, begun.reserved)
    if isinstance(released, Refused):
        give_up = partial(charge_release.give_up, is_unsure=released.is_unsure)
        ending = await in_transaction(deps, account, give_up, request, begun)
        if ending is Ending.APPLIED:
            read = partial(charge_release.read_applied, invoice_id=invoice_id)
            return await finish(deps, account, request, read, draft=draft)
        raise EngineError(
            INVOICE_NOT_REISSUABLE, released.detail + (_UNSURE if ending is Ending.KEPT else "")
        )
    complete = partial(_complete, stored=begun.request, released=released)
    return await charge_release.complete(deps, account, request, begun, function=complete, draft=draft)


async def _reserve(
    work: Work, *, invoice_id: UUID, wanted: Wanted, next_charge_id: UUID, places: Places
) -> Begun | View:
    """Store the request, and return the call that cancels the charge.

    If no charge must be canceled, reissue the invoice and return it.
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    planned = await charges.find(work.tx, next_charge_id)
    if planned is not None:
        if not wanted.may_be(planned):  # an expired Idempotency-Key is used for another reissue
            raise key_reused()
        return await charge_release.read_applied(work, invoice_id=invoice_id)
    stored = await merchant_requests.of_invoice(work, invoice_id)
    own = next((each.terms for each in stored if each.request_id == next_charge_id), None)
    if (
        own is None
    ):  # do not check a repeat: its due date was valid at the first request, and may have passed since
        _check_due_date(work, wanted.due_date)
    elif not wanted.may_be(own):
        raise key_reused()
    charge, terms = await _check(work, state, wanted)
    await _check_refunds(work, invoice_id)
    if merchant_requests.is_in_progress(work, stored, other_than=next_charge_id):
        detail = "Another reissue or a payment of the invoice is in progress; read it again in a minute."
        raise EngineError(INVOICE_NOT_REISSUABLE, detail)
    if not charge.is_unpaid_at_gateway:
        if state.status is InvoiceStatus.READY:  # the gateway refused the charge, and may refuse the next one
            await retries.pace(work, state)
        return await _replace(work, state, charge, terms, next_charge_id=next_charge_id)
    return await charge_release.begin(
        work, charge, next_charge_id, terms=terms, places=places, refusal=INVOICE_NOT_REISSUABLE
    )


async def _complete(work: Work, *, stored: MerchantRequest, released: Released) -> InvoiceView:
    """Plan the next charge of an invoice, move the invoice to `ready` and return it.

    The connection is not checked again. The charge is canceled by now, so if a check refused the request here, a poll
    would complete the reissue anyway.
    """
    invoice_id = stored.invoice_id
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    if await charges.exists(work.tx, stored.request_id):
        return await charge_release.read_applied(work, invoice_id=invoice_id)
    charge = await _reissuable_charge(work, state)
    if released.charge.charge_id != charge.charge_id:
        detail = "The invoice was issued while it was being reissued; read it, then try again."
        raise EngineError(INVOICE_NOT_REISSUABLE, detail)
    if await merchant_requests.is_replaced(work, stored):
        raise charge_release.replaced(INVOICE_NOT_REISSUABLE)
    await replacement.release(work, charge, released.state)
    assert stored.terms is not None, "a reissue has terms"
    return await _replace(work, state, charge, stored.terms, next_charge_id=stored.request_id)


async def _replace(
    work: Work, state: IssuanceState, charge: InvoiceCharge, terms: ChargeTerms, *, next_charge_id: UUID
) -> InvoiceView:
    assert state.total_cents is not None, "an invoice with a charge has a total"
    await replacement.replace(
        work, charge, terms, next_charge_id=next_charge_id, total_cents=state.total_cents
    )
    before, after = replacement.audited(state.status, charge, terms=terms)
    work.audit(state.invoice_id, before=before, after=after)
    return await invoices.read(work, state.invoice_id)


def _check_due_date(work: Work, due_date: date | None) -> None:
    latest = latest_first_charge(work.today)
    if due_date is not None and not work.today <= due_date <= latest:
        raise invalid_fields(("dueDate", f"must lie between {work.today} (today) and {latest}"))


async def _reissuable_charge(work: Work, state: IssuanceState) -> InvoiceCharge:
    """Return the newest charge of an invoice. Raises EngineError if the invoice cannot be reissued now."""
    if not await frozen_accounts.may_record(work.tx):
        raise account_recovering()
    refusal = _refusal(state, real_now=work.deps.clock())
    if refusal is not None:
        raise EngineError(INVOICE_NOT_REISSUABLE, refusal)
    assert state.charge is not None, "an invoice without a charge is not reissuable"
    return state.charge


async def _check(work: Work, state: IssuanceState, wanted: Wanted) -> tuple[InvoiceCharge, ChargeTerms]:
    """Check that an invoice may be reissued. Return its newest charge, and the terms of the next charge."""
    charge = await _reissuable_charge(work, state)
    await next_charge.check_count(work, charge.invoice_id, charge.number + 1)
    stored = await connections.find(work.tx, state.connection_id)
    assert stored is not None, "an invoice's connection exists"
    if not stored.connection.active:
        detail = "The gateway connection is inactive; activate it, then reissue the invoice."
        raise EngineError(INVOICE_NOT_REISSUABLE, detail)
    terms = _terms(work, charge, wanted)
    check_support(
        terms.payment_method,
        wanted.installments or terms.installments or 1,
        connections=stored.connection,
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
