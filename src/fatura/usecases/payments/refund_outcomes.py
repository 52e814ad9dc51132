"""Record the outcomes of the refunds that merchants requested (D-53).

A poll can report an outcome earlier than the answer to the refund's request. The effect is the same.
"""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from fatura.domain.charging import retry_delay
from fatura.domain.payments import EntryKind
from fatura.domain.refunds import RefundRequest, RefundStage, may_move
from fatura.gateways.port import Refund, RefundState
from fatura.observability import log
from fatura.store.billing import invoices, payment_entries
from fatura.store.billing.payment_entries import KnownEntry
from fatura.store.charging import refund_requests
from fatura.usecases.transaction import Work
from fatura.views.events import EventInvoiceView, InvoiceRefundDataView
from fatura.views.payments import RefundView

_STAGES = {
    RefundState.PENDING: RefundStage.ACCEPTED,
    RefundState.DONE: RefundStage.DONE,
    RefundState.FAILED: RefundStage.FAILED,
}
_Reported = Mapping[UUID, tuple[UUID, Refund]]
"""The refunds that gateways reported, by the engine's id of the refund, each with the id of its connection."""


async def record(work: Work, reported: _Reported) -> None:
    """Store the new stages of refunds. The caller has locked the invoices and recorded the entries of the refunds.

    An outdated answer changes nothing: a refund that is done stays done.
    """
    entries = await _entries(work, reported)
    for request in await refund_requests.lock(work.tx, list(reported)):
        connection_id, refund = reported[request.refund_id]
        stage = _STAGES[refund.state]
        if connection_id != request.connection_id or not may_move(request.stage, stage):
            continue
        match stage:
            case RefundStage.DONE:
                if request.stage is RefundStage.FAILED:
                    await _fail_next(work, request)
                await _finish(work, request, entries[connection_id, refund.reference or ""])
            case RefundStage.ACCEPTED:
                await _accept(work, request)
            case _:
                detail = refund.detail or "The gateway has given the refund up; see there why."
                await fail(work, request, code="failed_at_gateway", detail=detail)


async def fail(work: Work, request: RefundRequest, *, code: str, detail: str) -> None:
    """Mark a locked refund as failed, because the gateway did not make it, and emit `invoice.refund_failed`."""
    failed = request.failed_with(code, detail, at=work.now)
    await refund_requests.update(work.tx, [failed])
    detail_of = (await invoices.details(work.tx, [request.invoice_id]))[request.invoice_id]
    work.emit(
        "invoice.refund_failed",
        InvoiceRefundDataView(invoice=EventInvoiceView.of_detail(detail_of), refund=RefundView.of(failed)),
        subscription_id=detail_of.invoice.subscription_id,
        invoice_id=request.invoice_id,
    )


async def _fail_next(work: Work, late: RefundRequest) -> None:
    """Fail the unsent refunds of the same charge that the merchant requested after `late` seemed to have failed.

    The gateway has made the refund `late` after all, so another refund would return the money twice (D-151).
    """
    for request in await refund_requests.lock_unsent(work.tx, late.invoice_id):
        if (request.connection_id, request.gateway_charge_id) == (late.connection_id, late.gateway_charge_id):
            detail = "An earlier refund of the charge was made late. If you want to return more, ask again."
            await fail(work, request, code="made_late", detail=detail)


async def _entries(work: Work, reported: _Reported) -> Mapping[tuple[UUID, str], KnownEntry]:
    references = [refund.reference for _, refund in reported.values() if refund.reference is not None]
    return {
        (entry.connection_id, entry.reference): entry
        for entry in await payment_entries.known(work.tx, references)
        if entry.kind == EntryKind.REFUND
    }


async def _finish(work: Work, request: RefundRequest, entry: KnownEntry) -> None:
    if (entry.invoice_id, entry.amount_cents) != (request.invoice_id, request.amount_cents):
        log.error(
            "refund.entry_differs",
            refund_id=str(request.refund_id),
            amount_cents=request.amount_cents,
            made_cents=entry.amount_cents,
        )
    await refund_requests.update(work.tx, [request.done_by(entry.payment_entry_id, at=work.now)])


async def _accept(work: Work, request: RefundRequest) -> None:
    accepted = replace(
        request,
        stage=RefundStage.ACCEPTED,
        sent_at=request.sent_at or work.now,
        next_attempt_at=work.now + retry_delay(1),
        lease_until=None,
        failures=1,
        empty_lookups=0,
        looked_up_at=None,
    )
    await refund_requests.update(work.tx, [accepted])
