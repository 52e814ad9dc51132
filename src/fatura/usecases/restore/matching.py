"""Match a gateway's charge with an invoice or a cycle of the restored database (D-123).

This module issues no invoice. It writes the gateway's id of a matched charge into the row of a stored charge or of a
lost invoice. Issuance later looks the matched charge up by this id, and sends no request.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from fatura.domain.charge import ChargeStage, InvoiceCharge
from fatura.domain.charging import charge_due_date
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways.port import Charge, ChargeState
from fatura.store.billing import invoices as stored_invoices
from fatura.store.restore import charge_matching, lost_invoices
from fatura.store.restore.charge_matching import CandidateInvoice
from fatura.store.restore.lost_invoices import LostInvoice
from fatura.usecases.payments import gateway_payments, replacement, second_charges, waiting_requests
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.transaction import LaneName, Work


class MatchKind(StrEnum):
    """How a gateway's charge relates to the restored database."""

    KNOWN = "known"
    ADOPTED = "adopted"
    LOST = "lost"
    CANCELED = "canceled"
    UNMATCHED = "unmatched"


MEANINGS: dict[MatchKind, str] = {
    MatchKind.KNOWN: "its invoice has it already",
    MatchKind.ADOPTED: "its invoice exists and will be issued with it, or with another of its charges",
    MatchKind.LOST: "its cycle will be billed again, with the same invoice id and this charge",
    MatchKind.CANCELED: "canceled at the gateway; no invoice needs it, and none lacks its payments",
    MatchKind.UNMATCHED: "a person has to look at it",
}


@dataclass(frozen=True, slots=True)
class Match:
    """The result for one charge; `why` is set only if the charge is UNMATCHED."""

    kind: MatchKind
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ListedCharge:
    """A charge whose invoice is missing, and the connections that list the charge.

    Connections with the same account at the provider list the same charges.
    """

    charge: Charge
    connection_ids: list[UUID]

    def connection_of(self, preferred: UUID) -> UUID:
        """Return `preferred` if it lists the charge. Otherwise, return the first connection that lists the charge."""
        return preferred if preferred in self.connection_ids else self.connection_ids[0]


@dataclass(frozen=True, slots=True)
class ChargeOfCycle:
    """A charge whose invoice is missing, and the cycle that the invoice billed.

    `connection_id` is a connection that lists the charge. The restored database may pin the subscription to another
    connection, because the backup lacks later moves (D-160).
    """

    subscription_id: UUID
    connection_id: UUID
    cycle: int
    listed: ListedCharge


async def find_predecessors(work: Work, charges: Sequence[Charge]) -> Sequence[str]:
    """Return the gateway's ids of the stored charges that one of `charges` may have replaced after the backup."""
    invoices = await charge_matching.find_invoices(work.tx, [charge.invoice_id for charge in charges])
    return [
        invoice.gateway_invoice_id
        for charge in charges
        if (invoice := invoices.get(charge.invoice_id)) is not None
        and invoice.gateway_invoice_id is not None
        and _may_replace(charge, invoice)
    ]


async def match_by_invoice(
    work: Work, charges: Sequence[Charge], *, released: Mapping[str, Charge], dry_run: bool
) -> dict[str, Match]:
    """Match charges with the invoices that they reference; return the matches by charge id.

    Charges whose invoice is missing are left out. `released` contains the charges of `find_predecessors` that nobody
    can pay any more, by their ids at the gateway. The charges of one invoice are matched from the newest to the oldest.
    """
    invoice_ids = [charge.invoice_id for charge in charges]
    await stored_invoices.lock(work.tx, invoice_ids)
    invoices = await charge_matching.find_invoices(work.tx, invoice_ids)
    matches: dict[str, Match] = {}
    for charge in sorted(charges, key=lambda each: each.attempt, reverse=True):
        if (invoice := invoices.get(charge.invoice_id)) is not None:
            replaced = released.get(invoice.gateway_invoice_id or "")
            if replaced is not None and _may_replace(charge, invoice):
                invoice = await _reissue(work, invoice, replaced, dry_run=dry_run)
            matches[charge.charge_id], invoices[charge.invoice_id] = await _match(
                work, charge, invoice, dry_run=dry_run
            )
    return matches


async def match_by_cycle(
    work: Work, found: Sequence[ChargeOfCycle], *, read: Collection[UUID], dry_run: bool
) -> dict[str, Match]:
    """Match charges with cycles, and return the matches by charge id.

    If a cycle is not billed yet, store the charge. The billing run then adds the charge to the cycle's new invoice.
    `read` has connections whose whole list was read. If such a connection is not among the `connection_ids` of a
    charge, it certainly lacks the charge.
    """
    return {
        each.listed.charge.charge_id: await _match_cycle(work, each, read=read, dry_run=dry_run)
        for each in found
    }


def without_invoice(charge: Charge, *, why: str) -> Match:
    """Return CANCELED for a canceled charge without payments. Return UNMATCHED with the reason `why` for other charges.

    A canceled charge with payments is UNMATCHED, because no invoice records its payments (D-123).
    """
    is_canceled = charge.state is ChargeState.CANCELED and not charge.entries
    return Match(MatchKind.CANCELED) if is_canceled else Match(MatchKind.UNMATCHED, why)


async def _match(
    work: Work, charge: Charge, invoice: CandidateInvoice, *, dry_run: bool
) -> tuple[Match, CandidateInvoice]:
    """Match a charge with a locked invoice. Return the match, and the invoice as it is afterwards."""
    if _has(invoice, charge):
        return Match(MatchKind.KNOWN), invoice
    if charge.state is ChargeState.CANCELED and _needs_no_charge(invoice, charge):
        if not dry_run:
            invoice = await _record_payments(work, invoice, charge)
        return Match(MatchKind.CANCELED), invoice
    if _has_charge_or_is_closed(invoice):
        if not dry_run:
            known = invoice.gateway_invoice_id
            await second_charges.emit(
                work,
                invoice.invoice_id,
                connection_id=invoice.connection_id,
                known=known,
                charge=charge,
            )
            await second_charges.look_now(work, invoice.connection_id, [charge.charge_id])
        return Match(MatchKind.UNMATCHED, f"a second charge of an invoice that is {invoice.status}"), invoice
    charge_id = invoice.charge_id if invoice.is_open else work.new_id()
    adopted = replace(invoice, charge_id=charge_id, number=_number(invoice, charge))
    if not dry_run:
        await _adopt(work, charge, adopted)
    known_charge_ids = [*invoice.known_charge_ids, charge.charge_id]
    return Match(MatchKind.ADOPTED), replace(adopted, is_open=True, known_charge_ids=known_charge_ids)


def _has(invoice: CandidateInvoice, charge: Charge) -> bool:
    return charge.charge_id in {*invoice.gateway_ids, *invoice.known_charge_ids}


def _may_replace(charge: Charge, invoice: CandidateInvoice) -> bool:
    """Return whether a reissue after the backup may have made `charge` as the next charge of an issued invoice."""
    return (
        invoice.status in replacement.REISSUED_FROM
        and charge.state is not ChargeState.CANCELED
        and charge.charge_id not in invoice.gateway_ids
        and charge.attempt > (invoice.number or 0)
    )


async def _reissue(
    work: Work, invoice: CandidateInvoice, replaced: Charge, *, dry_run: bool
) -> CandidateInvoice:
    """Repeat a reissue that the restored database lacks. Return the invoice, which is now `ready` or `paid`.

    First record the payments of the replaced charge, because the next charge is for the unpaid part (D-67). Also record
    a manual payment that waits until the replaced charge is canceled (D-52). If these payments cover the total, the
    invoice is paid and not reissued. If the database has the reissue as a waiting request, apply this request, so that
    a repeat with its Idempotency-Key has no second effect (D-171).
    """
    if not dry_run:
        invoice = await _record_payments(work, invoice, replaced)
        if invoice.status not in replacement.REISSUED_FROM:
            return invoice
        invoice = await _settle_request(work, invoice, replaced)
        if invoice.status not in replacement.REISSUED_FROM:
            return invoice
        await replacement.repeat(work, invoice.invoice_id)
    return replace(invoice, status=InvoiceStatus.READY, gateway_invoice_id=None)


async def _record_payments(work: Work, invoice: CandidateInvoice, charge: Charge) -> CandidateInvoice:
    """Record the payments of a closed charge, so that the invoice's next charge is for the rest.

    Return the invoice as it is afterwards, because the payments can make it `paid`.
    """
    answer = ChargeAnswer(invoice.invoice_id, invoice.connection_id, charge)
    await gateway_payments.record(work, [answer])
    return (await charge_matching.find_invoices(work.tx, [invoice.invoice_id]))[invoice.invoice_id]


async def _settle_request(work: Work, invoice: CandidateInvoice, replaced: Charge) -> CandidateInvoice:
    """Close the replaced charge. Then apply the reissue or the manual payment that waited for this, if there is one.

    Return the invoice as it is afterwards. It may have the status `paid`, or `ready` with a next charge.
    """
    await waiting_requests.settle_replaced(work, invoice.invoice_id, replaced)
    return (await charge_matching.find_invoices(work.tx, [invoice.invoice_id]))[invoice.invoice_id]


def _has_charge_or_is_closed(invoice: CandidateInvoice) -> bool:
    closed = {InvoiceStatus.PAID, InvoiceStatus.CANCELED}
    return invoice.gateway_invoice_id is not None or invoice.status in closed


def _needs_no_charge(invoice: CandidateInvoice, charge: Charge) -> bool:
    """Return whether the invoice cannot adopt the charge.

    An invoice that has a charge or is closed adopts no charge. Other invoices do not adopt a charge with a lower number
    than their newest charge. If `invoice.is_open` is false, the newest charge has ended, so a charge with the same
    number is not adopted either.
    """
    if _has_charge_or_is_closed(invoice):
        return True
    newest = invoice.number or 0
    return charge.attempt < newest or (charge.attempt == newest and not invoice.is_open)


def _number(invoice: CandidateInvoice, charge: Charge) -> int:
    """Return the number of the stored charge that represents `charge` in the database; at least `charge.attempt`."""
    if invoice.number is None:
        return charge.attempt
    return max(charge.attempt, invoice.number if invoice.is_open else invoice.number + 1)


async def _adopt(work: Work, charge: Charge, invoice: CandidateInvoice) -> None:
    """Store the gateway's id of `charge`, so that issuance looks this charge up at the gateway.

    If `invoice.is_open`, add the id to the invoice's newest stored charge. Otherwise, insert a new stored charge with
    the id. The caller has put the `charge_id` and the `number` of this stored charge into `invoice`.
    """
    assert invoice.charge_id is not None, "an invoice that adopts a charge has an id for it"
    assert invoice.number is not None, "an invoice that adopts a charge has a number for it"
    if invoice.is_open:
        await charge_matching.add_charge(
            work.tx, invoice.charge_id, gateway_id=charge.charge_id, number=invoice.number
        )
    else:
        missing = InvoiceCharge(
            charge_id=invoice.charge_id,
            invoice_id=invoice.invoice_id,
            number=invoice.number,
            connection_id=invoice.connection_id,
            stage=ChargeStage.UNKNOWN,
            amount_cents=charge.amount_cents,
            currency=work.account.currency,
            payment_method=invoice.payment_method,
            installments=invoice.installments,
            due_date=charge.due_date or charge_due_date(invoice.due_date, today=work.today),
            created_at=work.now,
            first_sent_at=work.deps.clock(),
            sent_at=work.now,
            known_charge_ids=[charge.charge_id],
        )
        await charge_matching.insert_charge(work.tx, missing)
    await charge_matching.make_due(work.tx, invoice.invoice_id, now=work.now)
    work.notify(LaneName.ISSUANCE)


async def _match_cycle(work: Work, found: ChargeOfCycle, *, read: Collection[UUID], dry_run: bool) -> Match:
    charge, subscription_id = found.listed.charge, found.subscription_id
    invoice_id = await charge_matching.invoice_of(work.tx, subscription_id, found.cycle)
    if invoice_id is not None:  # the cycle was billed again after the restore
        await stored_invoices.lock(work.tx, [invoice_id])
        invoice = (await charge_matching.find_invoices(work.tx, [invoice_id]))[invoice_id]
        if invoice.connection_id not in found.listed.connection_ids:
            if _has(invoice, charge):  # two connections list the charge; it was matched through the other one
                return Match(MatchKind.KNOWN)
            is_elsewhere = invoice.connection_id in read
            return await _match_elsewhere(work, found, invoice, is_elsewhere=is_elsewhere, dry_run=dry_run)
        if not dry_run:
            await lost_invoices.keep(work.tx, _lost(found, connection_id=invoice.connection_id))
        match, _ = await _match(work, charge, invoice, dry_run=dry_run)
        return match
    if not await charge_matching.is_active(work.tx, subscription_id):
        return without_invoice(charge, why="its subscription is canceled and will not be billed again")
    if dry_run or await lost_invoices.keep(work.tx, _lost(found, connection_id=found.connection_id)):
        return Match(MatchKind.LOST)
    return without_invoice(charge, why="another connection has a charge of the same cycle")


def _lost(found: ChargeOfCycle, *, connection_id: UUID) -> LostInvoice:
    charge = found.listed.charge
    return LostInvoice(
        subscription_id=found.subscription_id,
        cycle=found.cycle,
        invoice_id=charge.invoice_id,
        connection_id=connection_id,
        attempt=charge.attempt,
        amount_cents=charge.amount_cents,
        charge_due_date=charge.due_date,
        charge_ids=[charge.charge_id],
    )


async def _match_elsewhere(
    work: Work, found: ChargeOfCycle, invoice: CandidateInvoice, *, is_elsewhere: bool, dry_run: bool
) -> Match:
    """Report a charge that the cycle's invoice cannot adopt, because the cycle was billed again on another connection.

    With `is_elsewhere`, the invoice's connection certainly lacks the charge, so the charge is a second charge (D-125).
    Record its payments now, because issuance may charge the unpaid part of the invoice when the freeze ends. Without
    `is_elsewhere`, record no payments, because both connections could record them.
    """
    charge = found.listed.charge
    match = without_invoice(charge, why="its cycle was billed again on another connection")
    is_canceled = charge.state is ChargeState.CANCELED
    if is_elsewhere and is_canceled:
        match = Match(MatchKind.CANCELED)  # the payments are recorded below
    if dry_run:
        return match
    if is_elsewhere:
        await lost_invoices.keep(work.tx, _lost(found, connection_id=invoice.connection_id))
        await second_charges.report_elsewhere(
            work,
            invoice.invoice_id,
            connection_id=found.connection_id,
            known=invoice.gateway_invoice_id,
            charge=charge,
        )
        await gateway_payments.record(work, [ChargeAnswer(invoice.invoice_id, found.connection_id, charge)])
    elif not is_canceled:
        await second_charges.emit(
            work,
            invoice.invoice_id,
            connection_id=invoice.connection_id,
            known=invoice.gateway_invoice_id,
            charge=charge,
        )
    return match
