"""What is written down about a gateway's charge after a restore: whose it is, and that it is not made again (D-123).

Nothing is adopted here: an attempt that knows its charges is asked after by issuance, and never sent.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from fatura.domain.charging import charge_due_date
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways.port import Charge, ChargeState
from fatura.store.restore import recovery
from fatura.store.restore.recovery import FoundAttempt, KnownInvoice, LostInvoice
from fatura.usecases.charging import outcomes
from fatura.usecases.lane_names import LaneName
from fatura.usecases.transaction import Work


class Found(StrEnum):
    """What a gateway's charge is to the restored tables."""

    KNOWN = "known"
    ADOPTED = "adopted"
    LOST = "lost"
    CANCELED = "canceled"
    STRAY = "stray"


MEANINGS: dict[Found, str] = {
    Found.KNOWN: "its invoice has it already",
    Found.ADOPTED: "its invoice is here, and will be issued by it",
    Found.LOST: "its cycle will be billed again, under the old invoice id, and issued by it",
    Found.CANCELED: "canceled at the gateway, and nothing here waits for it",
    Found.STRAY: "a person has to look",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a charge is, and for a stray why."""

    found: Found
    why: str | None = None


async def match(
    work: Work, charge: Charge, invoice: KnownInvoice, *, write: bool
) -> tuple[Verdict, KnownInvoice]:
    """Judge a charge by its held invoice, and write down what follows; returns the invoice as it is then."""
    if charge.charge_id in {invoice.gateway_invoice_id, *invoice.known_charge_ids}:
        return Verdict(Found.KNOWN), invoice
    if charge.state is ChargeState.CANCELED and _is_over(invoice, charge):
        return Verdict(Found.CANCELED), invoice
    if invoice.gateway_invoice_id is not None or invoice.status in {
        InvoiceStatus.PAID,
        InvoiceStatus.CANCELED,
    }:
        if write:
            known = invoice.gateway_invoice_id
            await outcomes.tell_second_charge(work, invoice.invoice_id, known=known, charge=charge)
        return Verdict(Found.STRAY, f"a second charge of an invoice that is {invoice.status}"), invoice
    number = _number(invoice, charge)
    if write:
        await _adopt(work, charge, invoice, number=number)
    known_charge_ids = [*invoice.known_charge_ids, charge.charge_id]
    found = replace(invoice, attempt=number, is_open=True, known_charge_ids=known_charge_ids)
    return Verdict(Found.ADOPTED), found


def _is_over(invoice: KnownInvoice, charge: Charge) -> bool:
    """Say whether nothing waits for the charge: its invoice is settled, or went on from the attempt that it is of."""
    if invoice.gateway_invoice_id is not None or invoice.status in {
        InvoiceStatus.PAID,
        InvoiceStatus.CANCELED,
    }:
        return True
    last = invoice.attempt or 0
    return charge.attempt < last or (charge.attempt == last and not invoice.is_open)


def _number(invoice: KnownInvoice, charge: Charge) -> int:
    """Return the open attempt, which the charge answers, or a number that no failed attempt has."""
    if invoice.attempt is None:
        return charge.attempt
    return invoice.attempt if invoice.is_open else max(charge.attempt, invoice.attempt + 1)


async def _adopt(work: Work, charge: Charge, invoice: KnownInvoice, *, number: int) -> None:
    if invoice.is_open:
        await recovery.note_found(work.tx, invoice.invoice_id, number, charge_id=charge.charge_id)
    else:
        found = FoundAttempt(
            invoice_id=invoice.invoice_id,
            attempt=number,
            connection_id=invoice.connection_id,
            amount_cents=charge.amount_cents,
            charge_due_date=charge.due_date or charge_due_date(invoice.due_date, today=work.today),
            charge_ids=[charge.charge_id],
        )
        await recovery.insert_found(work.tx, found, sent_at=work.now, real_now=work.deps.clock())
    await recovery.make_due(work.tx, invoice.invoice_id, now=work.now)
    work.notify(LaneName.ISSUANCE)


async def keep(work: Work, charge: Charge, subscription_id: UUID, *, cycle: int, write: bool) -> Verdict:
    """Judge a charge whose invoice is not here by the cycle that it bills, and keep it until that is billed again."""
    invoice_id = await recovery.invoice_of(work.tx, subscription_id, cycle)
    if invoice_id is not None:
        await recovery.hold(work.tx, [invoice_id])
        invoices = await recovery.known_invoices(work.tx, [invoice_id])
        verdict, _ = await match(work, charge, invoices[invoice_id], write=write)
        return verdict
    if not await recovery.is_active(work.tx, subscription_id):
        return unknown(charge, why="its subscription is canceled, and will not be billed again")
    lost = LostInvoice(
        subscription_id=subscription_id,
        cycle=cycle,
        invoice_id=charge.invoice_id,
        attempt=charge.attempt,
        amount_cents=charge.amount_cents,
        charge_due_date=charge.due_date,
        charge_ids=[charge.charge_id],
    )
    if write:
        await recovery.keep_lost(work.tx, lost)
    return Verdict(Found.LOST)


def unknown(charge: Charge, *, why: str) -> Verdict:
    """Return what a charge is that nothing here is billed by: one that is canceled needs nobody."""
    return Verdict(Found.CANCELED) if charge.state is ChargeState.CANCELED else Verdict(Found.STRAY, why)
