"""The only writer of an invoice's status: callers report facts, the state machine decides the transition (D-28)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.charging import next_poll_at
from fatura.domain.errors import EngineError
from fatura.domain.invoice_states import REFUSALS, Fact, InvoiceStatus, Transition, decide
from fatura.store.billing import invoice_status, invoices
from fatura.store.billing.invoice_status import LockedInvoice, Move
from fatura.store.pricing import price_pulls
from fatura.usecases.transaction import LaneName, Work
from fatura.views.events import (
    EventInvoiceView,
    InvoiceDataView,
    InvoiceIssueErrorDataView,
    InvoicePricingErrorDataView,
    IssueErrorView,
    PricingErrorView,
)


@dataclass(frozen=True, slots=True)
class Report:
    """A fact about one invoice, with the values that the resulting transition stores.

    `total_cents` is required for VALUES_CLOSED.
    """

    invoice_id: UUID
    fact: Fact
    gateway_invoice_id: str | None = None
    charge_due_date: date | None = None
    paid_at: datetime | None = None
    poll_at: datetime | None = None
    total_cents: int | None = None


async def report(work: Work, reports: Sequence[Report]) -> set[UUID]:
    """Lock the invoices, decide and write their transitions, emit the events; return the ids of changed invoices.

    `reports` must contain at most one report for each invoice. Raises EngineError if the fact is a client's request
    and the invoice's status refuses it.
    """
    if not reports:
        return set()
    by_id = {each.invoice_id: each for each in reports}
    assert len(by_id) == len(reports), "one report per invoice"
    decided: list[tuple[LockedInvoice, Transition]] = []
    for locked in await invoice_status.lock(work.tx, list(by_id)):
        reported = by_id[locked.invoice_id]
        fact = reported.fact
        total_cents = locked.total_cents if reported.total_cents is None else reported.total_cents
        refusal = REFUSALS.get((locked.status, fact))
        if refusal is not None:
            raise EngineError(refusal, f"The invoice is {locked.status}; {fact} no longer applies to it.")
        transition = decide(locked.status, fact, total_cents=total_cents, stamped=locked.stamped)
        if transition is not None:
            decided.append((locked, transition))
    if not decided:
        return set()
    await invoice_status.write(
        work.tx, [_move(work, by_id[locked.invoice_id], transition) for locked, transition in decided]
    )
    canceled = [locked.invoice_id for locked, each in decided if each.to is InvoiceStatus.CANCELED]
    if canceled:
        await price_pulls.end(work.tx, canceled)
    if any(each.to is InvoiceStatus.READY for _, each in decided):
        work.notify(LaneName.ISSUANCE)
    await _emit(work, decided)
    return {locked.invoice_id for locked, _ in decided}


def _move(work: Work, fact: Report, transition: Transition) -> Move:
    stamps = transition.stamps
    if "gateway_invoice_id" in stamps:
        assert fact.gateway_invoice_id is not None, "a confirmed charge has an id"
        assert fact.charge_due_date is not None, "a confirmed charge has a due date"
    return Move(
        invoice_id=fact.invoice_id,
        status=transition.to,
        total_cents=fact.total_cents,
        gateway_invoice_id=fact.gateway_invoice_id if "gateway_invoice_id" in stamps else None,
        charge_due_date=fact.charge_due_date if "gateway_invoice_id" in stamps else None,
        issued_at=work.now if "issued_at" in stamps else None,
        paid_at=(fact.paid_at or work.now) if "paid_at" in stamps else None,
        refunded_at=work.now if "refunded_at" in stamps else None,
        disputed_at=work.now if "disputed_at" in stamps else None,
        canceled_at=work.now if "canceled_at" in stamps else None,
        unexpected_payment_at=work.now if "unexpected_payment_at" in stamps else None,
        next_attempt_at=_next_attempt_at(work, fact, transition.to),
    )


def _next_attempt_at(work: Work, fact: Report, to: InvoiceStatus) -> datetime | None:
    """Return when to issue an invoice whose new state is `to`, or to poll its charge. None means neither."""
    if to is InvoiceStatus.READY:
        return work.now
    if to in {InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE}:
        assert fact.charge_due_date is not None, "an open charge has a due date"
        return fact.poll_at or next_poll_at(fact.charge_due_date, polled_at=work.now)
    return fact.poll_at


async def _emit(work: Work, decided: Sequence[tuple[LockedInvoice, Transition]]) -> None:
    details = await invoices.details(work.tx, [locked.invoice_id for locked, _ in decided])
    for locked, transition in decided:
        detail = details[locked.invoice_id]
        work.totals[f"invoices_{transition.from_}"] -= 1
        work.totals[f"invoices_{transition.to}"] += 1
        work.emit(
            transition.emits,
            InvoiceDataView.of(detail),
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
