"""Give an invoice its next charge after the gateway has canceled the previous one (D-51).

`reissue` calls `replace` when the gateway has confirmed that the charge is canceled. If the process dies or the
gateway's answer is lost, `waiting_requests` calls `replace` after a later poll of the charge.
"""

from collections.abc import Mapping
from dataclasses import replace as changed
from typing import Any
from uuid import UUID

from fatura.domain.charge import ChargeStage, ChargeTerms, InvoiceCharge
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.domain.payments import open_cents
from fatura.gateways.port import ChargeState
from fatura.store.billing import payment_entries
from fatura.store.charging import charges, confirmed_charges, issuance_state
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.payments import merchant_requests, second_charges
from fatura.usecases.transaction import Work

RELEASED: Mapping[ChargeState, ChargeStage] = {
    ChargeState.CANCELED: ChargeStage.CANCELED,
    ChargeState.EXPIRED: ChargeStage.EXPIRED,
}
"""The states at the gateway in which a charge can no longer be paid, each with the stage to store."""
REISSUED_FROM = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE)


async def replace(
    work: Work, charge: InvoiceCharge, terms: ChargeTerms, *, next_charge_id: UUID, total_cents: int
) -> None:
    """Plan the next charge of a locked invoice, and move the invoice to `ready`.

    `charge` must be the invoice's newest charge, and closed. The next charge is for the unpaid part of the
    total (D-67).
    """
    invoice_id = charge.invoice_id
    ledgers = await payment_entries.of_invoices(work.tx, [invoice_id])
    planned = changed(
        charge,
        charge_id=next_charge_id,
        number=charge.number + 1,
        stage=ChargeStage.PLANNED,
        amount_cents=open_cents(ledgers.get(invoice_id, ()), total_cents=total_cents),
        payment_method=terms.payment_method,
        installments=terms.installments,
        due_date=terms.due_date,
        created_at=work.now,
        first_sent_at=work.deps.clock(),
        sent_at=work.now,
    )
    await charges.insert_planned(work.tx, planned)
    if charge.gateway_invoice_id is not None:
        # a `ready` invoice is not polled, so late look-ups read the canceled charge
        await second_charges.plan_checks(work, [charge.charge_id])
    await merchant_requests.drop(work, [invoice_id])
    await invoice_moves.report(work, [Report(invoice_id, Fact.REISSUE_REQUESTED)])
    await issuance_state.make_due(work.tx, invoice_id, now=work.now, lease_until=None)


def audited(
    status: InvoiceStatus, charge: InvoiceCharge, *, terms: ChargeTerms
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the states of an invoice before and after a reissue, for the audit log."""
    return {"status": status} | _terms(charge.terms), {"status": InvoiceStatus.READY} | _terms(terms)


def _terms(terms: ChargeTerms) -> dict[str, Any]:
    return {
        "paymentMethod": terms.payment_method,
        "installments": terms.installments,
        "dueDate": terms.due_date,
    }


async def charge_rest(work: Work, invoice_id: UUID) -> None:
    """After a charge was canceled for a manual payment, plan the next charge if the invoice is still unpaid (D-52).

    The invoice is still unpaid if a refund that was made in the gateway has raised the open amount above the payment.
    """
    state = await issuance_state.lock(work.tx, invoice_id)
    assert state is not None, "a released invoice exists"
    if state.status not in REISSUED_FROM:
        return
    assert state.charge is not None, "an issued invoice has a charge"
    assert state.total_cents is not None, "an issued invoice has a total"
    await replace(
        work, state.charge, state.charge.terms, next_charge_id=work.new_id(), total_cents=state.total_cents
    )


async def release(work: Work, charge: InvoiceCharge, state: ChargeState) -> None:
    """Record that a charge is canceled or has expired at the gateway, as `state` says."""
    assert charge.gateway_invoice_id is not None, "only a confirmed charge is released"
    await confirmed_charges.close_released(
        work.tx, charge.invoice_id, charge.gateway_invoice_id, stage=RELEASED[state], now=work.now
    )


async def repeat(work: Work, invoice_id: UUID) -> None:
    """Repeat a reissue that a restore lost: move the locked invoice, whose charge is closed, to `ready` (D-123)."""
    await merchant_requests.drop(work, [invoice_id])
    await invoice_moves.report(work, [Report(invoice_id, Fact.REISSUE_REQUESTED)])
