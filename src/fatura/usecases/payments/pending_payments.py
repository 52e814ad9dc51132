"""Add manual payments to ledgers, at once or after the gateway has canceled a charge (D-52)."""

from collections.abc import Collection, Mapping
from typing import Any

from fatura.domain.audit_actions import INVOICE_RECORD_PAYMENT
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry, open_cents
from fatura.store.billing import payment_entries
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.charging.merchant_requests import ManualPayment, MerchantRequest
from fatura.usecases.payments import gateway_payments, replacement
from fatura.usecases.transaction import Work
from fatura.views.view import instant


async def add(work: Work, entry: PaymentEntry) -> None:
    """Add a manual entry to the ledger of its invoice, and report the resulting facts to `invoice_moves`."""
    locked = await payment_entries.lock_invoices(work.tx, [entry.invoice_id])
    await payment_entries.add(work.tx, [entry])
    await gateway_payments.report_new(work, locked, [entry])


async def record(
    work: Work, request: MerchantRequest, *, payment: ManualPayment, state: IssuanceState
) -> None:
    """Record a manual payment that had to wait until a charge was canceled or had expired at the gateway.

    If a refund that was made in the gateway has raised the open amount above the payment, plan the next charge for the
    rest.
    """
    assert state.total_cents is not None, "an issued invoice has a total"
    ledgers = await payment_entries.of_invoices(work.tx, [request.invoice_id])
    left_cents = open_cents(ledgers.get(request.invoice_id, ()), total_cents=state.total_cents)
    amount_cents = payment.recorded_cents(open_cents=left_cents)
    entry = PaymentEntry(
        payment_entry_id=request.request_id,
        invoice_id=request.invoice_id,
        kind=EntryKind.PAYMENT,
        amount_cents=amount_cents,
        fee_cents=0,
        currency=state.currency,
        occurred_at=payment.occurred_at,
        source=EntrySource.MANUAL,
        recorded_at=work.now,
        reference=payment.reference,
        method=payment.method,
        note=payment.note,
    )
    await add(work, entry)
    await replacement.charge_rest(work, request.invoice_id)
    work.audit_for(
        request.asked_by,
        INVOICE_RECORD_PAYMENT,
        resource_id=request.invoice_id,
        before={},
        after=audited(entry),
        hidden=hidden(entry),
    )


def audited(entry: PaymentEntry) -> Mapping[str, Any]:
    """Return the fields of a manual payment that the audit log shows."""
    return {
        "amountCents": entry.amount_cents,
        "method": entry.method,
        "paidAt": instant(entry.occurred_at),
    }


def hidden(entry: PaymentEntry) -> Collection[str]:
    """Return the names of the payment's text fields. The audit log must not show their values (D-222)."""
    return [name for name in ("reference", "note") if getattr(entry, name) is not None]
