"""When the gateway has shown a charge's state, apply or drop the requests that wait until the charge is canceled.

The engine stores a merchant's reissue, manual payment or cancellation of an invoice as a request. Only then does it ask
the gateway to cancel the charge. If the process dies or the gateway's answer is lost, a later poll of the charge calls
`settle` (D-171).
"""

from collections.abc import Sequence
from uuid import UUID

from fatura.domain.audit_actions import INVOICE_CANCEL, INVOICE_REISSUE
from fatura.domain.charge import InvoiceCharge
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways.port import Charge, ChargeState
from fatura.store.charging import charges, issuance_state
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.charging.merchant_requests import MerchantRequest
from fatura.usecases.payments import merchant_requests as requests
from fatura.usecases.payments import pending_payments, replacement
from fatura.usecases.transaction import Work


async def settle(work: Work, polled: Sequence[tuple[InvoiceCharge, Charge]]) -> set[UUID]:
    """Apply or drop the stored requests that wait for these charges; return the ids of the reissued invoices.

    `polled` are locked charges with the gateway's answers. The payments in the answers are recorded already. The
    charge's state in the answer decides:
    - canceled: the newest request is applied, and all other requests are dropped.
    - expired: the newest request that is no cancellation is applied, and all other requests are dropped (D-27).
    - paid: all requests are dropped.
    - still payable: requests for which `merchant_requests.is_over` is true are dropped. All other requests stay.
    """
    stored = await requests.of_invoices(work, [charge.invoice_id for charge, _ in polled])
    reissued: set[UUID] = set()
    for charge, answer in polled:
        waiting = [each for each in stored.get(charge.invoice_id, ()) if each.charge_id == charge.charge_id]
        if not waiting:
            continue
        if answer.state in replacement.RELEASED:
            # an invoice is canceled only if its charge was canceled, not if it expired (D-27)
            if answer.state is ChargeState.EXPIRED:
                waiting = [each for each in waiting if not each.is_cancellation]
            if waiting and await _apply(work, waiting[0], charge):
                reissued.add(charge.invoice_id)
        elif answer.state is not ChargeState.PAID:
            await requests.drop_over(work, [charge.invoice_id])
            continue
        await requests.drop(work, [charge.invoice_id])
    return reissued


async def settle_replaced(work: Work, invoice_id: UUID, replaced: Charge) -> None:
    """Close a locked invoice's newest charge, then apply the newest reissue or payment that waited for this (D-123).

    `replaced` is the gateway's answer, which shows the charge as canceled or expired. A reissue has replaced the
    charge, so do not apply a stored request to cancel the invoice.
    """
    charge = (await charges.newest(work.tx, [invoice_id]))[invoice_id]
    await replacement.release(work, charge, replaced.state)
    waiting = [each for each in await requests.of_invoice(work, invoice_id) if not each.is_cancellation]
    if waiting and waiting[0].charge_id == charge.charge_id:
        await _apply(work, waiting[0], charge)


async def _apply(work: Work, request: MerchantRequest, charge: InvoiceCharge) -> bool:
    """Do what the request asks for, now that the charge is closed. Return whether the invoice was reissued.

    If the invoice is neither `issued` nor `overdue` any more, do nothing.
    """
    state = await issuance_state.lock(work.tx, charge.invoice_id)
    assert state is not None, "a polled invoice exists"
    if state.status not in replacement.REISSUED_FROM:
        return False
    if request.payment is not None:
        await pending_payments.record(work, request, payment=request.payment, state=state)
    elif request.terms is not None:
        await _reissue(work, request, charge, state)
    else:  # only add the audit entry: the caller cancels the invoice, because its charge is canceled
        work.audit_for(
            request.asked_by,
            INVOICE_CANCEL,
            resource_id=charge.invoice_id,
            before={"status": state.status},
            after={"status": InvoiceStatus.CANCELED},
        )
    return request.terms is not None


async def _reissue(work: Work, request: MerchantRequest, charge: InvoiceCharge, state: IssuanceState) -> None:
    assert request.terms is not None, "a reissue has terms"
    assert state.total_cents is not None, "an issued invoice has a total"
    await replacement.replace(
        work, charge, request.terms, next_charge_id=request.request_id, total_cents=state.total_cents
    )
    before, after = replacement.audited(state.status, charge, terms=request.terms)
    work.audit_for(
        request.asked_by, INVOICE_REISSUE, resource_id=charge.invoice_id, before=before, after=after
    )
