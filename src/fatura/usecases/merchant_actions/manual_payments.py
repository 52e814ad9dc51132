"""Record manual payments, which the merchant received without the gateway.

If a payment covers the total, the gateway cancels the charge first (D-52). The merchant's request and its
Idempotency-Key are committed before the call to the gateway. If the process dies afterwards, and the gateway has
canceled the charge, a poll records the payment. The payment's id is derived from the key, so a repeat with the same key
finds the payment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from fatura.domain import payments as ledger_rules
from fatura.domain.account import Account
from fatura.domain.charge import IN_DOUBT, ChargeStage
from fatura.domain.errors import (
    AMOUNT_EXCEEDS_OPEN,
    INVOICE_NOT_PAYABLE,
    TOO_MANY_PAYMENTS,
    EngineError,
    account_recovering,
    invalid_fields,
    require,
)
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.payments import MAX_MANUAL_PAYMENTS, EntryKind, EntrySource, ManualMethod, PaymentEntry
from fatura.domain.subscription import ERASED
from fatura.domain.tags import Tagger
from fatura.store.billing import payment_entries
from fatura.store.charging import issuance_state, refund_requests
from fatura.store.charging import merchant_requests as stored_requests
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.charging.merchant_requests import ManualPayment, MerchantRequest
from fatura.store.restore import frozen_accounts
from fatura.store.subscriptions import erasures
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.billing import invoices
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, StoredAnswer, begin, finish, key_reused
from fatura.usecases.merchant_actions import charge_release
from fatura.usecases.merchant_actions.charge_release import Begun, Ending, Refused, Released
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import merchant_requests, pending_payments, replacement
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.invoices import InvoiceView
from fatura.views.view import View

_UNSURE = " If the charge turns out to be canceled, the payment is recorded automatically."


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A payment that the merchant received without the gateway.

    If `amount_cents` is None, the payment is for the open amount of the invoice. If `paid_at` is None, the payment was
    made now. `key` is the Idempotency-Key of the request. The id of the ledger entry is derived from the key, so a
    repeated request adds no second entry.
    """

    key: str
    amount_cents: int | None
    paid_at: datetime | None
    method: ManualMethod
    reference: str | None
    note: str | None

    def entry_id(self, tagger: Tagger, invoice_id: UUID) -> UUID:
        return tagger.request_id("payment", invoice_id, key=self.key)

    def may_be(self, known: PaymentEntry | ManualPayment) -> bool:
        """Return whether `known` can be the entry or the stored request of this payment.

        Texts are not compared, because an erasure changes them.
        """
        return (
            self.amount_cents in {None, known.amount_cents}
            and self.paid_at in {None, known.occurred_at}
            and self.method is known.method
        )

    def erased(self) -> "Received":
        """Return the payment without its texts, for an erased customer (D-229)."""
        return replace(
            self,
            reference=None if self.reference is None else ERASED,
            note=None if self.note is None else ERASED,
        )


async def receive(
    deps: Deps,
    account: Account,
    request: IdempotentRequest,
    invoice_id: UUID,
    *,
    received: Received,
    draft: AuditDraft,
) -> StoredAnswer:
    """Record the payment and answer with the invoice. If the payment covers the total, first cancel the unpaid charge.

    If the gateway does not confirm that the charge is canceled or expired, record nothing and raise
    `engine.invoice_not_payable`. If the gateway's answer was lost, a poll records the payment later, provided that the
    charge was canceled.
    Raises EngineError: `engine.invalid_request` (paidAt), `engine.not_found`, `engine.invoice_not_payable`,
    `engine.amount_exceeds_open`, `engine.too_many_payments`, `engine.account_recovering`, `engine.account_suspended`;
    the errors of `begin` and of `Places.take`.
    """
    with deps.gateway_requests.places(account.account_id) as places:
        reserve = partial(_reserve, invoice_id=invoice_id, received=received, places=places)
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
        raise EngineError(INVOICE_NOT_PAYABLE, released.detail + (_UNSURE if ending is Ending.KEPT else ""))
    complete = partial(_complete, received=received, stored=begun.request, released=released)
    return await charge_release.complete(deps, account, request, begun, function=complete, draft=draft)


async def _reserve(work: Work, *, invoice_id: UUID, received: Received, places: Places) -> Begun | View:
    """Store the payment as a request, and return the call that cancels the charge.

    If no charge must be canceled, record the payment and return the invoice.
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    recorded = await payment_entries.find(work.tx, received.entry_id(work.deps.tagger, invoice_id))
    if recorded is not None:
        is_same_amount = received.amount_cents is not None or await _was_rest(work, state)
        # if the payments differ, an expired Idempotency-Key was used again, for another payment
        if not (is_same_amount and received.may_be(recorded)):
            raise key_reused()
        return await charge_release.read_applied(work, invoice_id=invoice_id)
    if received.paid_at is not None and received.paid_at > work.now:
        raise invalid_fields(("paidAt", "must not lie in the future"))
    if await erasures.is_erased(work.tx, invoice_id):
        received = received.erased()
    open_cents, ledger = await _open_cents(work, state)
    entry_id = received.entry_id(work.deps.tagger, invoice_id)
    stored = await merchant_requests.of_invoice(work, invoice_id)
    if merchant_requests.is_in_progress(work, stored, other_than=entry_id):
        detail = (
            "A reissue or another payment of the invoice is in progress; read the invoice again in a minute."
        )
        raise EngineError(INVOICE_NOT_PAYABLE, detail)
    own = next((each.payment for each in stored if each.request_id == entry_id), None)
    if own is not None and not received.may_be(own):
        raise key_reused()
    if own is not None:  # the open amount may have changed since the payment was stored
        amount_cents = own.recorded_cents(open_cents=open_cents)
    else:
        amount_cents = open_cents if received.amount_cents is None else received.amount_cents
    is_part = not _covers(work, state, received, ledger, amount_cents=amount_cents)
    await _check(work, invoice_id, amount_cents=amount_cents, open_cents=open_cents, is_part=is_part)
    if is_part and own is None:
        await _drop_other_payments(work, stored)
    charge = state.charge
    if charge is None or not charge.is_unpaid_at_gateway or (is_part and own is None):
        return await _record(work, state, received, amount_cents=amount_cents)
    payment = own or ManualPayment(
        amount_cents=amount_cents,
        at_most_open=received.amount_cents is None,
        occurred_at=received.paid_at or work.now,
        method=received.method,
        reference=received.reference,
        note=received.note,
    )
    return await charge_release.begin(
        work, charge, entry_id, payment=payment, places=places, refusal=INVOICE_NOT_PAYABLE
    )


async def _was_rest(work: Work, state: IssuanceState) -> bool:
    """Return whether the recorded payments cover the total. Only then can one of them have been for the open amount.

    Ignore refunds and disputes, because the gateway may have reported them after that payment.
    """
    ledger = (await payment_entries.of_invoices(work.tx, [state.invoice_id])).get(state.invoice_id, ())
    assert state.total_cents is not None, "a paid invoice has a total"
    paid = sum(each.amount_cents for each in ledger if each.kind is EntryKind.PAYMENT)
    return paid >= state.total_cents


async def _complete(
    work: Work, *, received: Received, stored: MerchantRequest, released: Released
) -> InvoiceView:
    """Record the payment for which a charge was canceled, even if the payment exceeds the amount that is open now.

    If a refund that was made in the gateway has raised the open amount above the payment, plan the next charge for the
    rest. If the invoice got another charge meanwhile, check the payment like a new one.
    """
    invoice_id = stored.invoice_id
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    if await payment_entries.exists(work.tx, stored.request_id):
        return await charge_release.read_applied(work, invoice_id=invoice_id)
    if await erasures.is_erased(work.tx, invoice_id):
        received = received.erased()
    open_cents, ledger = await _open_cents(work, state)
    assert stored.payment is not None, "a manual payment was stored"
    amount_cents = stored.payment.recorded_cents(open_cents=open_cents)
    charge = state.charge
    if charge is not None and released.charge.charge_id == charge.charge_id:
        if await merchant_requests.is_replaced(work, stored):
            raise charge_release.replaced(INVOICE_NOT_PAYABLE)
        await replacement.release(work, charge, released.state)
        await _record(work, state, received, amount_cents=amount_cents)
        await replacement.charge_rest(work, invoice_id)
        return await invoices.read(work, invoice_id)
    is_part = not _covers(work, state, received, ledger, amount_cents=amount_cents)
    await _check(work, invoice_id, amount_cents=amount_cents, open_cents=open_cents, is_part=is_part)
    if state.status is not InvoiceStatus.READY:
        detail = "The invoice was issued while the payment was being recorded; read it, then try again."
        raise EngineError(INVOICE_NOT_PAYABLE, detail)
    return await _record(work, state, received, amount_cents=amount_cents)


async def _record(work: Work, state: IssuanceState, received: Received, *, amount_cents: int) -> InvoiceView:
    entry = _entry(work, state, received, amount_cents=amount_cents)
    await pending_payments.add(work, entry)
    await stored_requests.remove(work.tx, [entry.payment_entry_id])
    work.audit(
        state.invoice_id,
        before={},
        after=pending_payments.audited(entry),
        hidden=pending_payments.hidden(entry),
    )
    return await invoices.read(work, state.invoice_id)


async def _open_cents(work: Work, state: IssuanceState) -> tuple[int, Sequence[PaymentEntry]]:
    """Return the open amount and the ledger of an invoice.

    Raises EngineError if the invoice accepts no manual payment now.
    """
    if not await frozen_accounts.may_record(work.tx):
        raise account_recovering()
    refusal = _refusal(state, real_now=work.deps.clock())
    if refusal is not None:
        raise EngineError(INVOICE_NOT_PAYABLE, refusal)
    assert state.total_cents is not None, "an invoice that can be paid has a total"
    ledger = (await payment_entries.of_invoices(work.tx, [state.invoice_id])).get(state.invoice_id, ())
    return ledger_rules.open_cents(ledger, total_cents=state.total_cents), ledger


def _covers(
    work: Work,
    state: IssuanceState,
    received: Received,
    ledger: Sequence[PaymentEntry],
    *,
    amount_cents: int,
) -> bool:
    assert state.total_cents is not None, "an invoice that can be paid has a total"
    entry = _entry(work, state, received, amount_cents=amount_cents)
    return ledger_rules.covers(entry, ledger, total_cents=state.total_cents)


async def _check(work: Work, invoice_id: UUID, *, amount_cents: int, open_cents: int, is_part: bool) -> None:
    """Refuse a payment above the open amount, and a part payment after too many manual payments.

    While a refund is pending, also refuse a payment that covers the total. Otherwise, the charge would be canceled for
    this payment. The refund could then raise the open amount, so that the payment no longer covers the total.
    """
    if amount_cents > open_cents:
        detail = f"Only {open_cents} cents of the invoice are open."
        raise EngineError(AMOUNT_EXCEEDS_OPEN, detail, meta={"openCents": open_cents})
    if not is_part and await refund_requests.has_open(work.tx, invoice_id):
        detail = "A refund of the invoice is pending; wait until it is done or failed."
        raise EngineError(INVOICE_NOT_PAYABLE, detail)
    if is_part:
        recorded = await payment_entries.count_manual_payments(work.tx, invoice_id)
        if recorded >= MAX_MANUAL_PAYMENTS:
            detail = f"The invoice has {recorded} manual payments; record one payment of all that is open."
            raise EngineError(TOO_MANY_PAYMENTS, detail, meta={"limit": MAX_MANUAL_PAYMENTS})


async def _drop_other_payments(work: Work, stored: Sequence[MerchantRequest]) -> None:
    """Before a part payment is recorded, drop the stored payments that wait for the cancellation of the charge.

    If a waiting payment must be kept, refuse the part payment. Otherwise, the engine could record both (D-52, D-171).
    """
    others = [each for each in stored if each.payment is not None]
    if not all([await merchant_requests.may_drop(work, each) for each in others]):
        detail = (
            "Another payment waits until the gateway has canceled the charge; read the invoice in a minute, or repeat "
            "that payment with its Idempotency-Key."
        )
        raise EngineError(INVOICE_NOT_PAYABLE, detail)
    await stored_requests.remove(work.tx, [each.request_id for each in others])


def _refusal(state: IssuanceState, *, real_now: datetime) -> str | None:
    stage = None if state.charge is None else state.charge.stage
    match state.status:
        case InvoiceStatus.ISSUED | InvoiceStatus.OVERDUE:
            return None
        case InvoiceStatus.READY if stage is ChargeStage.PARKED:
            return "Nobody knows whether the gateway holds a charge of the invoice; check there, then retry issuance."
        case InvoiceStatus.READY if stage in IN_DOUBT or state.is_leased(real_now):
            return "The invoice is being issued; read it again in a minute."
        case InvoiceStatus.READY:
            return None
        case InvoiceStatus.DRAFT | InvoiceStatus.AWAITING_VALUE:
            return "The invoice waits for its values and has no total yet."
        case InvoiceStatus.PAID:
            return "The invoice is paid."
        case InvoiceStatus.CANCELED:
            return "The invoice is canceled."


def _entry(work: Work, state: IssuanceState, received: Received, *, amount_cents: int) -> PaymentEntry:
    return PaymentEntry(
        payment_entry_id=received.entry_id(work.deps.tagger, state.invoice_id),
        invoice_id=state.invoice_id,
        kind=EntryKind.PAYMENT,
        amount_cents=amount_cents,
        fee_cents=0,
        currency=state.currency,
        occurred_at=received.paid_at or work.now,
        source=EntrySource.MANUAL,
        recorded_at=work.now,
        reference=received.reference,
        method=received.method,
        note=received.note,
    )
