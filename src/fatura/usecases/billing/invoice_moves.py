"""The only writer of an invoice's status: callers report facts, and the table of states decides the move (D-28).

In the code, a `Transition` is the decided move, and a `Move` has the values that the move stores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import zip_longest
from uuid import UUID

from fatura.domain.charging import next_paid_poll_at
from fatura.domain.errors import EngineError
from fatura.domain.invoice import InvoiceDetail
from fatura.domain.invoice_states import ENTRY_FACTS, REFUSALS, Fact, InvoiceStatus, Transition, decide
from fatura.domain.payments import PaymentEntry
from fatura.store.billing import invoice_status, invoices
from fatura.store.billing.invoice_status import LockedInvoice, Move
from fatura.store.pricing import price_pulls
from fatura.usecases.transaction import LaneName, Work
from fatura.views.events import (
    DATA,
    EventInvoiceView,
    InvoiceDataView,
    InvoiceEntryDataView,
    InvoiceIssueErrorDataView,
    InvoicePricingErrorDataView,
    IssueErrorView,
    PricingErrorView,
)


@dataclass(frozen=True, slots=True)
class Report:
    """A fact about one invoice, with the values that the resulting transition stores.

    `total_cents` is required for VALUES_CLOSED. `entry` is required for ENTRY_FACTS, and None for all other facts.
    `gateway_invoice_id`, `charge_due_date` and `issued_at` belong to the charge that was confirmed or paid. If
    `issued_at` is None, the charge was confirmed now.
    """

    invoice_id: UUID
    fact: Fact
    gateway_invoice_id: str | None = None
    charge_due_date: date | None = None
    issued_at: datetime | None = None
    entry: PaymentEntry | None = None
    poll_at: datetime | None = None
    total_cents: int | None = None


_Shown = dict[UUID, tuple[Transition, InvoiceDetail]]
"""By invoice id: the transition after which the invoice's details were read, and these details."""


async def report(work: Work, reports: Sequence[Report]) -> set[UUID]:
    """Lock the invoices, decide and write their transitions, emit the events; return the ids of changed invoices.

    `reports` must contain at most one report for each invoice. Raises EngineError if a fact is a client's request
    that the invoice's status does not allow.
    """
    return await _report(work, reports, shown={})


async def report_in_turn(work: Work, reports: Sequence[Sequence[Report]]) -> None:
    """Report facts of invoices; each element of `reports` has the facts of one invoice, in order.

    Each event contains the invoice's details. They are read again only after a transition that changes them, because
    an invoice may have many facts, and reading its details for each event would be slow.
    """
    shown: _Shown = {}
    for together in zip_longest(*reports):
        await _report(work, [each for each in together if each is not None], shown=shown)


async def _report(work: Work, reports: Sequence[Report], *, shown: _Shown) -> set[UUID]:
    if not reports:
        return set()
    by_id = {each.invoice_id: each for each in reports}
    if len(by_id) != len(reports):
        raise ValueError("there must be one report per invoice")
    if any((each.fact in ENTRY_FACTS) is (each.entry is None) for each in reports):
        raise ValueError("exactly the facts about entries must have an entry")
    decided: list[tuple[LockedInvoice, Transition]] = []
    for locked in await invoice_status.lock(work.tx, list(by_id)):
        reported = by_id[locked.invoice_id]
        fact = reported.fact
        total_cents = locked.total_cents if reported.total_cents is None else reported.total_cents
        refusal = REFUSALS.get((locked.status, fact))
        if refusal is not None:
            raise EngineError(refusal, f"The invoice is {locked.status}; {fact} no longer applies to it.")
        transition = decide(locked.status, fact, total_cents=total_cents)
        if transition is not None:
            decided.append((locked, transition))
    if not decided:
        return set()
    await invoice_status.write(
        work.tx, [_move(work, locked, by_id[locked.invoice_id], transition) for locked, transition in decided]
    )
    closed = [
        locked.invoice_id
        for locked, each in decided
        if each.to in {InvoiceStatus.PAID, InvoiceStatus.CANCELED} and each.from_ is not each.to
    ]
    if closed:
        await price_pulls.end(work.tx, closed, closed_at=work.deps.clock())
    if any(each.to is InvoiceStatus.READY for _, each in decided):
        work.notify(LaneName.ISSUANCE)
    await _read(work, decided, shown=shown)
    _emit(work, decided, shown=shown, entries={each.invoice_id: each.entry for each in reports})
    return {locked.invoice_id for locked, _ in decided}


def _move(work: Work, locked: LockedInvoice, fact: Report, transition: Transition) -> Move:
    stamps = transition.stamps
    if "gateway_invoice_id" in stamps:
        assert fact.gateway_invoice_id is not None, "a confirmed charge has an id"
        assert fact.charge_due_date is not None, "a confirmed charge has a due date"
    is_new = transition.from_ is not transition.to and transition.to in {
        InvoiceStatus.ISSUED,
        InvoiceStatus.PAID,
    }
    has_charge = is_new and fact.gateway_invoice_id is not None
    paid_at = work.now if fact.entry is None else fact.entry.occurred_at
    return Move(
        invoice_id=fact.invoice_id,
        status=transition.to,
        total_cents=fact.total_cents,
        gateway_invoice_id=fact.gateway_invoice_id if has_charge else None,
        charge_due_date=fact.charge_due_date if has_charge else None,
        issued_at=(fact.issued_at or work.now) if has_charge else None,
        paid_at=paid_at if "paid_at" in stamps else None,
        refunded_at=work.now if "refunded_at" in stamps else None,
        disputed_at=work.now if "disputed_at" in stamps else None,
        is_dispute_cleared="disputed_at" in transition.clears,
        canceled_at=work.now if "canceled_at" in stamps else None,
        unexpected_payment_at=work.now if "unexpected_payment_at" in stamps else None,
        next_attempt_at=_next_attempt_at(work, locked, fact, transition.to),
        keeps_schedule=fact.fact in ENTRY_FACTS and transition.to is locked.status,
    )


def _next_attempt_at(work: Work, locked: LockedInvoice, fact: Report, to: InvoiceStatus) -> datetime | None:
    """If `to` is READY, return when to issue the invoice. Otherwise, return when to poll its charge; None means never.

    `invoice_status.write` ignores the result if the fact has a ledger entry and does not change the status.
    """
    if to is InvoiceStatus.READY:
        return work.now
    if fact.poll_at is None and to is InvoiceStatus.PAID and locked.has_charge:
        paid_at = work.now if fact.entry is None else fact.entry.polled_from
        return next_paid_poll_at(fact.invoice_id, paid_at=paid_at, polled_at=work.now)
    return fact.poll_at


async def _read(work: Work, decided: Sequence[tuple[LockedInvoice, Transition]], *, shown: _Shown) -> None:
    """Read the details of an invoice if `shown` lacks them, or if the transition changed them.

    `shown` has the newest details of each invoice, with the transition after which they were read. If the transition
    is repeated, the details are still current: timestamps that are set already keep their values.
    """
    after = {
        locked.invoice_id: transition
        for locked, transition in decided
        if (known := shown.get(locked.invoice_id)) is None
        or (transition != known[0] and _changes_invoice(transition))
    }
    for invoice_id, detail in (await invoices.details(work.tx, list(after))).items() if after else ():
        shown[invoice_id] = after[invoice_id], detail


def _changes_invoice(transition: Transition) -> bool:
    return transition.from_ is not transition.to or bool(transition.stamps or transition.clears)


def _emit(
    work: Work,
    decided: Sequence[tuple[LockedInvoice, Transition]],
    *,
    shown: _Shown,
    entries: Mapping[UUID, PaymentEntry | None],
) -> None:
    for locked, transition in decided:
        _, detail = shown[locked.invoice_id]
        entry = entries[locked.invoice_id]
        work.totals[f"invoices_{transition.from_}"] -= 1
        work.totals[f"invoices_{transition.to}"] += 1
        if DATA[transition.emits] is InvoiceEntryDataView:
            assert entry is not None, transition
            data = InvoiceEntryDataView.of_entry(detail, entry)
        else:
            data = InvoiceDataView.of(detail)
        work.emit(
            transition.emits,
            data,
            subscription_id=detail.invoice.subscription_id,
            invoice_id=locked.invoice_id,
        )


async def alert(
    work: Work, invoice_id: UUID, type_: str, *, error: IssueErrorView | PricingErrorView
) -> None:
    """Emit an event about an invoice whose status does not change (D-36)."""
    detail = (await invoices.details(work.tx, [invoice_id]))[invoice_id]
    invoice = EventInvoiceView.of_detail(detail)
    work.emit(
        type_,
        InvoicePricingErrorDataView(invoice=invoice, error=error)
        if isinstance(error, PricingErrorView)
        else InvoiceIssueErrorDataView(invoice=invoice, error=error),
        subscription_id=detail.invoice.subscription_id,
        invoice_id=invoice_id,
    )
