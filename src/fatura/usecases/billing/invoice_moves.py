"""The one door of an invoice's status: facts go in, the table decides, rows and events come out (D-28)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.charging import next_poll_at
from fatura.domain.errors import EngineError
from fatura.domain.events import invoice_data
from fatura.domain.invoice_states import REFUSALS, Fact, InvoiceStatus, Row, decide
from fatura.store.billing import invoice_status, invoices
from fatura.store.billing.invoice_status import LockedInvoice, Move
from fatura.store.pricing import price_pulls
from fatura.usecases.lane_names import LaneName
from fatura.usecases.transaction import Work


@dataclass(frozen=True, slots=True)
class Report:
    """A fact about one invoice, with what its row may stamp; `total_cents` comes with closed values."""

    invoice_id: UUID
    fact: Fact
    gateway_invoice_id: str | None = None
    charge_due_date: date | None = None
    paid_at: datetime | None = None
    poll_at: datetime | None = None
    total_cents: int | None = None


async def report(work: Work, reports: Sequence[Report]) -> set[UUID]:
    """Lock the invoices, let the table decide, write the moves and tell them; return which moved.

    At most one report an invoice. Raises EngineError where the client must be told that a move is refused.
    """
    if not reports:
        return set()
    by_id = {each.invoice_id: each for each in reports}
    assert len(by_id) == len(reports), "one report an invoice"
    decided: list[tuple[LockedInvoice, Row]] = []
    for locked in await invoice_status.lock(work.tx, list(by_id)):
        told = by_id[locked.invoice_id]
        fact, total_cents = told.fact, locked.total_cents if told.total_cents is None else told.total_cents
        refusal = REFUSALS.get((locked.status, fact))
        if refusal is not None:
            raise EngineError(refusal, f"The invoice is {locked.status}; {fact} no longer applies to it.")
        row = decide(locked.status, fact, total_cents=total_cents, stamped=locked.stamped)
        if row is not None:
            decided.append((locked, row))
    if not decided:
        return set()
    await invoice_status.write(
        work.tx, [_move(work, by_id[locked.invoice_id], row) for locked, row in decided]
    )
    canceled = [locked.invoice_id for locked, row in decided if row.to is InvoiceStatus.CANCELED]
    if canceled:
        await price_pulls.end(work.tx, canceled)
    if any(row.to is InvoiceStatus.READY for _, row in decided):
        work.notify(LaneName.ISSUANCE)
    await _tell(work, decided)
    return {locked.invoice_id for locked, _ in decided}


def _move(work: Work, fact: Report, row: Row) -> Move:
    stamps = set(row.stamps)
    if "gateway_invoice_id" in stamps:
        assert fact.gateway_invoice_id is not None, "a confirmed charge has an id"
        assert fact.charge_due_date is not None, "a confirmed charge has a due date"
    return Move(
        invoice_id=fact.invoice_id,
        status=row.to,
        total_cents=fact.total_cents,
        gateway_invoice_id=fact.gateway_invoice_id if "gateway_invoice_id" in stamps else None,
        charge_due_date=fact.charge_due_date if "gateway_invoice_id" in stamps else None,
        issued_at=work.now if "issued_at" in stamps else None,
        paid_at=(fact.paid_at or work.now) if "paid_at" in stamps else None,
        refunded_at=work.now if "refunded_at" in stamps else None,
        disputed_at=work.now if "disputed_at" in stamps else None,
        unexpected_payment_at=work.now if "unexpected_payment_at" in stamps else None,
        next_attempt_at=_next_attempt_at(work, fact, row.to),
    )


def _next_attempt_at(work: Work, fact: Report, to: InvoiceStatus) -> datetime | None:
    """Return when the new state's own work is due: issuing, or asking after the charge."""
    if to is InvoiceStatus.READY:
        return work.now
    if to in {InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE}:
        assert fact.charge_due_date is not None, "an open charge has a due date"
        return fact.poll_at or next_poll_at(fact.charge_due_date, polled_at=work.now)
    return fact.poll_at


async def _tell(work: Work, decided: Sequence[tuple[LockedInvoice, Row]]) -> None:
    details = await invoices.details(work.tx, [locked.invoice_id for locked, _ in decided])
    for locked, row in decided:
        detail = details[locked.invoice_id]
        work.totals[f"invoices_{row.from_}"] -= 1
        work.totals[f"invoices_{row.to}"] += 1
        work.emit(
            row.tells,
            invoice_data(detail),
            subscription_id=detail.invoice.subscription_id,
            invoice_id=locked.invoice_id,
        )


async def alert(work: Work, invoice_id: UUID, type_: str, *, error: dict[str, object]) -> None:
    """Tell something about an invoice that moves nothing (D-36)."""
    detail = (await invoices.details(work.tx, [invoice_id]))[invoice_id]
    work.emit(
        type_,
        invoice_data(detail, error=error),
        subscription_id=detail.invoice.subscription_id,
        invoice_id=invoice_id,
    )
