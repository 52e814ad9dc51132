"""Record the payments, refunds and disputes that gateways report, each once, and change the invoices (D-50).

The same answer may arrive twice, late, or after a newer answer. An entry is a payment, a refund or a step of a dispute.
The connection, the kind and the provider's reference identify an entry, so it is recorded only once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import IN_DOUBT, MAY_APPEAR, ChargeStage, InvoiceCharge
from fatura.domain.charging import next_paid_poll_at
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry, covering_entry, facts, in_order
from fatura.gateways.port import Charge
from fatura.observability import log
from fatura.store.billing import payment_entries
from fatura.store.billing.payment_entries import LedgerInvoice
from fatura.store.charging import charge_polling, charges
from fatura.store.restore import charge_matching, frozen_accounts
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.deps import Deps
from fatura.usecases.payments import merchant_requests, refund_outcomes, second_charges
from fatura.usecases.transaction import LaneName, Work, in_transaction

_Key = tuple[UUID, str, str]
"""The connection, the kind and the reference of a gateway's entry."""
_GatewayId = tuple[UUID, str]
"""An invoice, and the gateway's id of one of its charges."""
REOPENED = frozenset({"amount_differs", "charge_missing"})
"""Error codes with which a parked charge can be reopened (D-181).

If the charges that were found for the parked charge have paid the invoice, the parked charge becomes `unknown` again,
and issuance looks the found charges up.
"""
BATCH = 100
"""Maximum number of a charge's new entries that one transaction records (D-178)."""


@dataclass(frozen=True, slots=True)
class ChargeAnswer:
    """A charge of an invoice, as the gateway of a connection returned it. It may be a second charge."""

    invoice_id: UUID
    connection_id: UUID
    charge: Charge


async def record(
    work: Work, answers: Sequence[ChargeAnswer], *, due_again: Collection[UUID] = frozenset()
) -> Collection[str]:
    """Record the new entries and refunds of charges, and report the resulting facts to `invoice_moves`.

    Return the gateway's ids of the charges with new entries. This locks the invoices of charges with entries or
    refunds. `due_again` are the ids of invoices whose charges must be polled again immediately. Charges that issuance
    must look up first are left out (see `_adopting`).
    """
    answers = [each for each in answers if each.charge.entries or each.charge.refunds]
    if not answers:
        return ()
    invoices = await payment_entries.lock_invoices(work.tx, [each.invoice_id for each in answers])
    new = await new_entries(work, answers)
    if adopting := await _adopting(work, invoices, new):
        await _look_up(work, list(adopting.values()))
        # leave out the refunds of these charges too: a done refund refers to its entry, which issuance records later
        left = {(each.invoice_id, id_) for each in adopting.values() for id_ in each.known_charge_ids}
        answers = [each for each in answers if (each.invoice_id, each.charge.charge_id) not in left]
        new = [each for each in new if (each.invoice_id, each.gateway_charge_id) not in left]
    await _add(work, invoices, answers, new, due_again=due_again)
    reported = {
        refund.refund_id: (answer.connection_id, refund)
        for answer in answers
        for refund in answer.charge.refunds
    }
    if reported:
        await refund_outcomes.record(work, reported)
    return {each.gateway_charge_id for each in new if each.gateway_charge_id is not None}


async def _adopting(
    work: Work, invoices: Mapping[UUID, LedgerInvoice], new: Sequence[PaymentEntry]
) -> Mapping[UUID, InvoiceCharge]:
    """Return, by invoice id, the newest charge of each `ready` invoice that must be issued before it gets its entries.

    The newest charge of such an invoice is parked or in doubt, but the gateway has shown charges that may be this
    charge. The new entries pay the invoice in full, and at least one entry belongs to such a found charge. The caller
    must not record these entries. Issuance looks the found charges up, issues the invoice with one of them, and only
    then records the entries. So no invoice is paid without a charge (D-170, D-181).
    """
    ready = {entry.invoice_id for entry in new if invoices[entry.invoice_id].status is InvoiceStatus.READY}
    if not ready:
        return {}
    ledgers = await payment_entries.of_invoices(work.tx, list(ready))
    adopting: dict[UUID, InvoiceCharge] = {}
    for invoice_id, newest in (await charges.newest(work.tx, list(ready))).items():
        total_cents = invoices[invoice_id].total_cents
        of_invoice = [entry for entry in new if entry.invoice_id == invoice_id]
        is_found = any(entry.gateway_charge_id in newest.known_charge_ids for entry in of_invoice)
        may_reopen = newest.stage is ChargeStage.PARKED and newest.error_code in REOPENED
        if not (is_found and (may_reopen or newest.stage in IN_DOUBT)) or total_cents is None:
            continue
        # The first entry that covers the total pays the invoice, even if money is returned later (D-150).
        if covering_entry([*ledgers.get(invoice_id, ()), *of_invoice], total_cents=total_cents) is not None:
            adopting[invoice_id] = newest
    return adopting


async def _look_up(work: Work, newest: Sequence[InvoiceCharge]) -> None:
    """Make issuance look up the charges that were found for each parked charge in `newest`.

    If a charge in `newest` is not parked, its outcome is unknown, so its look-up is scheduled already.
    """
    for charge in newest:
        if charge.stage is ChargeStage.PARKED:
            await charge_matching.reopen(work.tx, charge.charge_id)
            await charge_matching.make_due(work.tx, charge.invoice_id, now=work.now)
            work.notify(LaneName.ISSUANCE)


def may_exceed_batch(charge: Charge) -> bool:
    """Return whether a charge may have more than BATCH new entries."""
    return len(charge.entries) > BATCH


async def record_ahead(deps: Deps, account: Account, answers: Sequence[ChargeAnswer]) -> None:
    """If a charge has more than BATCH new entries, record the oldest ones in transactions of BATCH entries (D-178).

    The caller must call `record` with the same answers afterwards, to record the remaining entries. At most BATCH
    new entries of each charge remain, unless the account is frozen or issuance must record the entries.
    """
    for answer in answers:
        if may_exceed_batch(answer.charge):
            while await in_transaction(deps, account, _record_oldest, answer):
                pass


async def _record_oldest(work: Work, answer: ChargeAnswer) -> bool:
    """If a charge has more than BATCH new entries, record the oldest BATCH of them and return True.

    Otherwise, record none and return False. Also record none if the account is frozen, or if the invoice must first be
    issued with the charge. In the latter case, issuance records the entries.
    """
    if not await frozen_accounts.may_record(work.tx):
        return False
    invoices = await payment_entries.lock_invoices(work.tx, [answer.invoice_id])
    new = await new_entries(work, [answer])
    if len(new) <= BATCH or await _adopting(work, invoices, new):
        return False
    # If the worker dies before the next batch, the entries that are left are recorded when the charge is read again: by
    # a poll or, if the invoice has no charge of its own, by `unmatched_charges` or a late look-up.
    is_polled = invoices[answer.invoice_id].gateway_invoice_id is not None
    due_again = {answer.invoice_id} if is_polled else set[UUID]()
    await _add(work, invoices, [answer], in_order(new)[:BATCH], due_again=due_again)
    return True


async def _add(
    work: Work,
    invoices: Mapping[UUID, LedgerInvoice],
    answers: Sequence[ChargeAnswer],
    new: Sequence[PaymentEntry],
    *,
    due_again: Collection[UUID] = frozenset(),
) -> None:
    """Add new entries of these answers to the ledgers of locked invoices, and report the facts that follow."""
    if not new:
        return
    await payment_entries.add(work.tx, new)
    changed = {entry.invoice_id: invoices[entry.invoice_id] for entry in new}
    await report_new(work, changed, new, due_again=due_again)
    stages = {(each.connection_id, each.charge.charge_id): each.charge.state for each in answers}
    await second_charges.plan_looks(work, new, stages=stages)


async def unrecorded(work: Work, connection_id: UUID, found: Sequence[Charge]) -> set[str]:
    """Return the gateway's ids of the charges that have unrecorded entries. All charges must be of the connection."""
    references = {entry.reference for charge in found for entry in charge.entries}
    if not references:
        return set()
    known = {
        (each.kind, each.reference)
        for each in await payment_entries.known(work.tx, list(references))
        if each.connection_id == connection_id
    }
    return {
        charge.charge_id
        for charge in found
        if any((str(entry.kind), entry.reference) not in known for entry in charge.entries)
    }


async def report_new(
    work: Work,
    invoices: Mapping[UUID, LedgerInvoice],
    new: Sequence[PaymentEntry],
    *,
    due_again: Collection[UUID] = frozenset(),
) -> None:
    """Report to `invoice_moves` the facts that follow from new entries in the ledgers of locked invoices.

    Also schedule the next polls. For each invoice that is now paid, drop the merchant's stored requests. If a paid
    invoice was `ready`, also stop charging it.
    """
    new_ids = {entry.payment_entry_id for entry in new}
    ledgers = await payment_entries.of_invoices(work.tx, list(invoices))
    ours = await _charges_by_gateway_id(work, list(invoices))
    reports = [
        _reports(work, invoice, ledgers[invoice_id], new_ids, ours=ours, is_due=invoice_id in due_again)
        for invoice_id, invoice in invoices.items()
    ]
    await invoice_moves.report_in_turn(work, reports)
    await _plan_polls(work, new)
    paid = [each.invoice_id for found in reports for each in found if each.fact is Fact.PAID_IN_FULL]
    if paid:
        await merchant_requests.drop(work, paid)
    await _stop_charging(work, [each for each in paid if invoices[each].status is InvoiceStatus.READY])


async def _plan_polls(work: Work, new: Sequence[PaymentEntry]) -> None:
    """For each paid or canceled invoice with a new payment, schedule the next poll for refunds and disputes (D-55)."""
    first = {
        entry.invoice_id: at
        for entry in sorted(new, key=lambda each: each.polled_from)
        if entry.kind is EntryKind.PAYMENT
        and (at := next_paid_poll_at(entry.invoice_id, paid_at=entry.polled_from, polled_at=work.now))
        is not None
    }
    if first:
        await charge_polling.make_paid_due(work.tx, list(first), at=list(first.values()))


async def plan_polls(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """Schedule a poll of each of these locked invoices that is paid or canceled and has payments (D-55)."""
    next_at = {
        invoice_id: at
        for invoice_id, paid_at in (await payment_entries.newest_payments(work.tx, invoice_ids)).items()
        if (at := next_paid_poll_at(invoice_id, paid_at=paid_at, polled_at=work.now)) is not None
    }
    if next_at:
        await charge_polling.make_paid_due(work.tx, list(next_at), at=list(next_at.values()))


async def _stop_charging(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """End the unsent charges of invoices that were paid before they were issued.

    - If a request may have created a charge, plan late look-ups of this charge (D-125).
    - A charge that was found for a request is a second charge now. Plan to read it immediately, because the payer could
      pay it too (D-181).
    """
    if not invoice_ids:
        return
    await charges.close_unsent(work.tx, invoice_ids, now=work.now)
    for charge in (await charges.newest(work.tx, invoice_ids)).values():
        if charge.stage in MAY_APPEAR:
            await second_charges.plan_checks(work, [charge.charge_id])
            if charge.known_charge_ids:
                await charges.end_found(work.tx, charge, now=work.now)
                await second_charges.look_now(work, charge.connection_id, charge.known_charge_ids)


def _reports(
    work: Work,
    invoice: LedgerInvoice,
    ledger: Sequence[PaymentEntry],
    new: set[UUID],
    *,
    ours: Mapping[_GatewayId, InvoiceCharge],
    is_due: bool,
) -> Sequence[Report]:
    seconds = {
        entry.payment_entry_id
        for entry in ledger
        if entry.source is EntrySource.GATEWAY and entry.charge_id is None
    }
    found = facts(ledger, new=new, unexpected=seconds, status=invoice.status, total_cents=invoice.total_cents)
    reports: list[Report] = []
    for each in found:
        paid = ours.get((invoice.invoice_id, each.entry.gateway_charge_id or ""))
        if each.fact is not Fact.PAID_IN_FULL:
            paid = None
        # if the payment is not of the invoice's own charge, the immediate poll cancels that charge if it is payable
        polls_now = is_due or (each.fact is Fact.PAID_IN_FULL and _is_elsewhere(invoice, each.entry))
        reports.append(
            Report(
                invoice.invoice_id,
                each.fact,
                gateway_invoice_id=None if paid is None else paid.gateway_invoice_id,
                charge_due_date=None if paid is None else paid.due_date,
                issued_at=None if paid is None else paid.confirmed_at,
                entry=each.entry,
                poll_at=work.now if polls_now else None,
            )
        )
    return reports


def _is_elsewhere(invoice: LedgerInvoice, entry: PaymentEntry) -> bool:
    own = invoice.gateway_invoice_id
    return own is not None and entry.gateway_charge_id != own


async def _charges_by_gateway_id(
    work: Work, invoice_ids: Sequence[UUID]
) -> Mapping[_GatewayId, InvoiceCharge]:
    """Return the confirmed charges of invoices, by the invoice's id and the gateway's id of the charge.

    All other charges of these invoices at a gateway are second charges.
    """
    return {
        (charge.invoice_id, charge.gateway_invoice_id or ""): charge
        for charge in await charges.confirmed(work.tx, invoice_ids)
    }


async def new_entries(work: Work, answers: Sequence[ChargeAnswer]) -> Sequence[PaymentEntry]:
    """Return the entries that are not recorded yet. Log an error if a recorded entry has another amount or invoice."""
    references = {entry.reference for answer in answers for entry in answer.charge.entries}
    known = {
        (each.connection_id, each.kind, each.reference): (each.invoice_id, each.amount_cents)
        for each in await payment_entries.known(work.tx, list(references))
    }
    ours = await _charges_by_gateway_id(work, [each.invoice_id for each in answers])
    new: dict[_Key, PaymentEntry] = {}
    for answer in answers:
        charge = answer.charge
        for entry in charge.entries:
            key = (answer.connection_id, str(entry.kind), entry.reference)
            if (recorded := known.get(key)) is not None:
                _check_same(answer, key, (entry.amount_cents, *recorded))
            elif key not in new:
                own = ours.get((answer.invoice_id, charge.charge_id))
                new[key] = PaymentEntry(
                    payment_entry_id=work.new_id(),
                    invoice_id=answer.invoice_id,
                    charge_id=None if own is None else own.charge_id,
                    connection_id=answer.connection_id,
                    gateway_charge_id=charge.charge_id,
                    kind=entry.kind,
                    amount_cents=entry.amount_cents,
                    fee_cents=entry.fee_cents,
                    currency=entry.currency,
                    occurred_at=entry.occurred_at,
                    source=EntrySource.GATEWAY,
                    reference=entry.reference,
                    recorded_at=work.now,
                )
    return list(new.values())


def _check_same(answer: ChargeAnswer, key: _Key, found: tuple[int, UUID, int]) -> None:
    amount_cents, recorded_invoice_id, recorded_cents = found
    if (amount_cents, answer.invoice_id) != (recorded_cents, recorded_invoice_id):
        log.error(
            "payment.entry_changed",
            invoice_id=str(answer.invoice_id),
            recorded_invoice_id=str(recorded_invoice_id),
            kind=key[1],
            reference=key[2],
            amount_cents=amount_cents,
            recorded_cents=recorded_cents,
        )


async def payable_in_vain(work: Work, answers: Sequence[ChargeAnswer]) -> Sequence[Charge]:
    """Return the charges that a payer can still pay although their invoice is paid or canceled (D-50)."""
    payable = [each for each in answers if each.charge.is_payable]
    if not payable:
        return []
    invoices = await payment_entries.lock_invoices(work.tx, [each.invoice_id for each in payable])
    closed = {InvoiceStatus.PAID, InvoiceStatus.CANCELED}
    return [each.charge for each in payable if invoices[each.invoice_id].status in closed]
