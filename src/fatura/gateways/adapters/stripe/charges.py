"""Convert invoices of Stripe to charges of the port: states, entries of the ledger, and refunds (D-263)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from fatura.domain.calendar import local_date
from fatura.domain.charge import PayData
from fatura.domain.payments import EntryKind
from fatura.gateways import port
from fatura.gateways.adapters.stripe.objects import (
    Dispute,
    Invoice,
    InvoicePayment,
    Metadata,
    Refund,
    instant,
)
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.port import ChargeState, RefundState

CURRENCY = "BRL"
DRAFT = "draft"
STATES: Mapping[str | None, ChargeState] = {
    "open": ChargeState.OPEN,
    "paid": ChargeState.PAID,
    "void": ChargeState.CANCELED,
    "uncollectible": ChargeState.EXPIRED,
}
"""The state of a charge by the status of its invoice. A draft is no charge yet, because it cannot be paid."""
REFERENCE = "fatura_reference"
"""The name of the metadata with the invoice and the attempt."""
REFUND = "fatura_refund"
"""The name of the metadata with the engine's id of a refund."""
_REFUND_STATES: Mapping[str | None, RefundState] = {
    "succeeded": RefundState.DONE,
    "failed": RefundState.FAILED,
    "canceled": RefundState.FAILED,
}
"""The state of a refund by its status. With any other status, Stripe still works on the refund."""
_DISPUTES: Mapping[str, tuple[EntryKind, ...]] = {
    "needs_response": (EntryKind.DISPUTE_OPENED,),
    "under_review": (EntryKind.DISPUTE_OPENED,),
    "appeal_needs_response": (EntryKind.DISPUTE_OPENED,),
    "appeal_under_review": (EntryKind.DISPUTE_OPENED,),
    "won": (EntryKind.DISPUTE_OPENED, EntryKind.DISPUTE_WON),
    "lost": (EntryKind.DISPUTE_OPENED, EntryKind.DISPUTE_LOST),
}
"""The steps of a dispute by its status. Inquiries (`warning_...`) and prevented disputes move no money."""
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REFERENCE = re.compile(rf"({_UUID}):([0-9]{{1,9}})")
INVOICE_ID = re.compile("in_[A-Za-z0-9_]{1,80}")
_UUIDV7 = 7
LONGEST_SEARCH = timedelta(days=30)
"""How far a search goes back if the invoice's id does not say when the invoice was made."""


def reference(invoice_id: UUID, attempt: int) -> str:
    return f"{invoice_id}:{attempt}"


def has_reference(metadata: Metadata | None, *, only: str | None = None) -> bool:
    """Return whether metadata have the reference `only` or, if this is None, any reference of the engine."""
    found = (metadata or {}).get(REFERENCE, "")
    return _REFERENCE.fullmatch(found) is not None if only is None else found == only


def made_after(invoice_id: UUID, *, now: datetime) -> datetime:
    """Return an instant before which no charge of an invoice was made.

    The engine's ids of invoices begin with the instant at which the invoice was generated.
    """
    if invoice_id.version == _UUIDV7:
        generated = datetime.fromtimestamp((invoice_id.int >> 80) / 1000, UTC)
        if generated <= now:
            return generated - timedelta(days=1)
    return now - LONGEST_SEARCH


def unreadable(charge_id: str | None) -> port.Charge:
    """Return a charge that the engine's checks refuse, in place of an invoice that cannot be read (D-50)."""
    none = cast("Any", None)
    return port.Charge(charge_id or none, none, none, none, none)


def _asked_cents(invoice: Invoice) -> int:
    """Return what the payer was asked for: the total and the part of the customer's balance that Stripe applied.

    Credit notes do not change this amount. Voiding an invoice gives the balance back.
    """
    if invoice.ending_balance is None or invoice.status == "void":
        return invoice.total
    return invoice.total + invoice.starting_balance - invoice.ending_balance


def paid_parts(invoice: Invoice) -> Sequence[InvoicePayment]:
    """Return the payments that arrived, oldest first. Raises InvalidFieldError if Stripe does not show all payments."""
    if invoice.payments is None or invoice.payments.has_more:
        if invoice.amount_paid or STATES.get(invoice.status) is ChargeState.PAID:
            raise InvalidFieldError("Stripe does not list all payments of an invoice")
        return ()
    paid = [each for each in invoice.payments.data if each.status == "paid" and each.amount_paid]
    return sorted(paid, key=lambda each: (_paid_at(each), each.id))


def charge_of(
    invoice: Invoice, *, refunds: Sequence[Refund] = (), disputes: Sequence[Dispute] = (), now: datetime
) -> port.Charge:
    """Return the charge of an invoice that is no draft.

    Raises NotFoundError if the invoice is a draft or has no reference of the engine, and InvalidFieldError.
    """
    named = _REFERENCE.fullmatch((invoice.metadata or {}).get(REFERENCE, ""))
    if named is None or invoice.status == DRAFT:
        raise port.NotFoundError("the invoice is no charge of Fatura")
    if not INVOICE_ID.fullmatch(invoice.id):
        raise InvalidFieldError("an invoice of Stripe has an id of an unknown form")
    if invoice.currency.upper() != CURRENCY:
        raise InvalidFieldError("an invoice of Stripe has another currency")
    entries = (*_payments(invoice), *_refunds(refunds), *_steps(disputes, now=now))
    state: Any = STATES.get(invoice.status, invoice.status)
    if state is ChargeState.PAID and not entries:
        state = ChargeState.CANCELED  # a credit note has settled the whole invoice, and no money arrived
    return port.Charge(
        charge_id=invoice.id,
        invoice_id=UUID(named[1]),
        attempt=int(named[2]),
        state=state,
        amount_cents=_asked_cents(invoice),
        due_date=None if invoice.due_date is None else local_date(instant(invoice.due_date)),
        pay=PayData(url=invoice.hosted_invoice_url),
        entries=entries,
        refunds=tuple(found for each in refunds if (found := _own_refund(each)) is not None),
        created_at=instant(invoice.created),
    )


def refundable(
    parts: Sequence[InvoicePayment], refunds: Sequence[Refund], *, cents: int
) -> InvoicePayment | None:
    """Return the first payment of which at least `cents` were not refunded yet."""
    for part in parts:
        taken = sum(
            each.amount
            for each in refunds
            if _REFUND_STATES.get(each.status) is not RefundState.FAILED and _is_of(each, part)
        )
        if _is_refundable(part) and (part.amount_paid or 0) - taken >= cents:
            return part
    return None


def has_own_refund(refunds: Sequence[Refund], refund_id: UUID) -> bool:
    return any((each.metadata or {}).get(REFUND) == str(refund_id) for each in refunds)


def _is_refundable(part: InvoicePayment) -> bool:
    return part.payment.payment_intent is not None or part.payment.charge is not None


def _is_of(refund: Refund, part: InvoicePayment) -> bool:
    source = part.payment
    return (refund.payment_intent is not None and refund.payment_intent == source.payment_intent) or (
        refund.charge is not None and refund.charge == source.charge
    )


def _payments(invoice: Invoice) -> Iterator[port.ChargeEntry]:
    """Yield the payments, and what a person marked as paid outside Stripe.

    Stripe shows the latter only as a part of the paid amount. While a payment is neither paid nor canceled, its state
    may lag behind this amount. Then raises InvalidFieldError.
    """
    paid, sum_cents = paid_parts(invoice), 0
    for each in paid:
        amount = each.amount_paid or 0
        sum_cents += amount
        yield port.ChargeEntry(EntryKind.PAYMENT, each.id, amount, CURRENCY, _paid_at(each))
    rest = invoice.amount_paid - sum_cents
    if rest <= 0 or STATES.get(invoice.status) is not ChargeState.PAID:
        return
    if invoice.payments is None or any(
        each.status != "canceled" and each not in paid for each in invoice.payments.data
    ):
        raise InvalidFieldError("Stripe does not show yet what paid an invoice")
    times = invoice.status_transitions
    paid_at = instant(invoice.created if times.paid_at is None else times.paid_at)
    yield port.ChargeEntry(EntryKind.PAYMENT, f"{invoice.id} outside Stripe", rest, CURRENCY, paid_at)


def _paid_at(part: InvoicePayment) -> datetime:
    paid_at = part.status_transitions.paid_at
    return instant(part.created if paid_at is None else paid_at)


def _refunds(refunds: Sequence[Refund]) -> Iterator[port.ChargeEntry]:
    for each in refunds:
        if _REFUND_STATES.get(each.status) is RefundState.DONE:
            currency = each.currency.upper()
            yield port.ChargeEntry(EntryKind.REFUND, each.id, each.amount, currency, instant(each.created))


def _own_refund(refund: Refund) -> port.Refund | None:
    """Return a refund that the engine asked for, or None."""
    text = (refund.metadata or {}).get(REFUND, "")
    if not re.fullmatch(_UUID, text):
        return None
    state = _REFUND_STATES.get(refund.status, RefundState.PENDING)
    if state is RefundState.FAILED:
        detail = f"Stripe did not make the refund: {refund.failure_reason or refund.status}."
        return port.Refund(UUID(text), state, detail=detail)
    return port.Refund(UUID(text), state, refund.id if state is RefundState.DONE else None)


def _steps(disputes: Sequence[Dispute], *, now: datetime) -> Iterator[port.ChargeEntry]:
    """Yield the steps of disputes. Stripe does not say when a dispute ended."""
    for each in disputes:
        for kind in _DISPUTES.get(each.status, ()):
            at = instant(each.created) if kind is EntryKind.DISPUTE_OPENED else now
            yield port.ChargeEntry(kind, each.id, each.amount, each.currency.upper(), at)
