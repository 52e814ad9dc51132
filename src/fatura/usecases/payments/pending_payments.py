"""Add manual payments to ledgers, at once or after the gateway has canceled a charge (D-52).

`manual_payments` stores the payment as a request before it asks the gateway to cancel the charge. If the process dies
or the gateway's answer is lost, a later poll of the charge calls `settle`, which records or drops the payment.
"""

from collections.abc import Sequence
from uuid import UUID

from fatura.domain.charge import InvoiceCharge
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry, open_cents
from fatura.gateways.port import Charge, ChargeState
from fatura.store.billing import payment_entries
from fatura.store.charging import charges, issuance_state, payment_requests
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.charging.payment_requests import PaymentRequest
from fatura.usecases.payments import gateway_payments, merchant_requests, replacement
from fatura.usecases.transaction import Work


async def add(work: Work, entry: PaymentEntry) -> None:
    """Add a manual entry to the ledger of its invoice, and report the resulting facts to `invoice_moves`."""
    locked = await payment_entries.lock_invoices(work.tx, [entry.invoice_id])
    await payment_entries.add(work.tx, [entry])
    await gateway_payments.report_new(work, locked, [entry])


async def settle(work: Work, polled: Sequence[tuple[InvoiceCharge, Charge]]) -> None:
    """Record or drop the manual payments that wait for the cancellation of these charges.

    `polled` are locked charges with the gateway's answers; the payments in the answers are recorded already. If
    the gateway has canceled or closed the charge, the manual payment is recorded. If the charge is paid, the manual
    payment is dropped. If the charge can still be paid, the manual payment is kept until `merchant_requests.is_over`.
    """
    requests = await payment_requests.of_invoices(work.tx, [charge.invoice_id for charge, _ in polled])
    done: list[UUID] = []
    for charge, answer in polled:
        request = requests.get(charge.invoice_id)
        if request is None or request.charge_id != charge.charge_id:
            continue
        state = await issuance_state.lock(work.tx, charge.invoice_id)
        assert state is not None, "a polled invoice exists"
        if answer.state in replacement.RELEASED and state.status in replacement.REISSUED_FROM:
            await _record(work, request, state)
            done.append(charge.invoice_id)
        elif answer.state is ChargeState.PAID or merchant_requests.is_over(work, request.in_progress_until):
            done.append(charge.invoice_id)
    if done:
        await payment_requests.remove(work.tx, done)


async def settle_replaced(work: Work, invoice_id: UUID, replaced: Charge) -> None:
    """Close a locked invoice's newest charge, and record the manual payment that waits for its cancellation (D-123).

    `replaced` is the gateway's answer, which shows the charge as canceled or expired.
    """
    charge = (await charges.newest(work.tx, [invoice_id]))[invoice_id]
    await replacement.release(work, charge, replaced.state)
    await settle(work, [(charge, replaced)])


async def _record(work: Work, request: PaymentRequest, state: IssuanceState) -> None:
    assert state.total_cents is not None, "an issued invoice has a total"
    ledgers = await payment_entries.of_invoices(work.tx, [request.invoice_id])
    left_cents = open_cents(ledgers.get(request.invoice_id, ()), total_cents=state.total_cents)
    amount_cents = request.recorded_cents(open_cents=left_cents)
    await add(work, _entry_of(work, request, state, amount_cents=amount_cents))
    await replacement.charge_rest(work, request.invoice_id)


def _entry_of(
    work: Work, request: PaymentRequest, state: IssuanceState, *, amount_cents: int
) -> PaymentEntry:
    return PaymentEntry(
        payment_entry_id=request.payment_entry_id,
        invoice_id=request.invoice_id,
        kind=EntryKind.PAYMENT,
        amount_cents=amount_cents,
        fee_cents=0,
        currency=state.currency,
        occurred_at=request.occurred_at,
        source=EntrySource.MANUAL,
        recorded_at=work.now,
        reference=request.reference,
        method=request.method,
        note=request.note,
    )
