"""Reissues and manual payments that wait until the gateway has canceled a charge (D-51, D-52).

A request is in progress while its process may still wait for the gateway's answer. A process that was suspended may
cancel the charge even after `in_progress_until`. So the stored request is kept for KEPT_FOR after this time. A poll
that finds the charge canceled continues the request. A later request of the merchant replaces a stored request that is
not in progress any more (D-171).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.charging import next_cancellation_at
from fatura.gateways.port import CALL_TIMEOUT_SECONDS
from fatura.store.charging import charge_polling, charges, payment_requests, reissue_requests
from fatura.store.charging.payment_requests import PaymentRequest
from fatura.store.charging.reissue_requests import ReissueRequest
from fatura.usecases.transaction import Work

IN_PROGRESS_FOR = timedelta(seconds=CALL_TIMEOUT_SECONDS + 10)
"""How long the cancellation may take, in real time."""
KEPT_FOR = timedelta(hours=24)
"""How long a request is kept, in real time, after `in_progress_until`, while the charge can still be paid."""

StoredRequest = ReissueRequest | PaymentRequest


def is_over(work: Work, in_progress_until: datetime) -> bool:
    """Return whether KEPT_FOR has passed since `in_progress_until`, so that the request may be dropped."""
    return in_progress_until + KEPT_FOR <= work.deps.clock()


async def may_drop(work: Work, request: StoredRequest) -> bool:
    """Return whether a refund or a part payment may drop a stored request (D-171).

    The request must be over, and the gateway must have answered about the charge after the call that cancels it.
    Otherwise, the gateway may already have canceled the charge, and nothing would continue the request.
    """
    ended_at = request.requested_at + IN_PROGRESS_FOR
    is_ended = is_over(work, request.in_progress_until)
    return is_ended and await charges.was_asked(work.tx, request.charge_id, since=ended_at)


async def is_reissuing(work: Work, invoice_id: UUID) -> bool:
    request = (await reissue_requests.of_invoices(work.tx, [invoice_id])).get(invoice_id)
    return request is not None and request.in_progress_until > work.deps.clock()


async def is_in_progress(work: Work, invoice_id: UUID, *, other_than: UUID | None = None) -> bool:
    """Return whether a reissue or a manual payment of a locked invoice is in progress.

    A reissue whose next charge has the id `other_than` does not count, because it is the caller's own.
    """
    reissue = (await reissue_requests.of_invoices(work.tx, [invoice_id])).get(invoice_id)
    payment = (await payment_requests.of_invoices(work.tx, [invoice_id])).get(invoice_id)
    ends = [] if reissue is None or reissue.next_charge_id == other_than else [reissue.in_progress_until]
    ends += [] if payment is None else [payment.in_progress_until]
    return any(end > work.deps.clock() for end in ends)


async def find(work: Work, invoice_id: UUID) -> StoredRequest | None:
    """Return the reissue or the manual payment of a locked invoice that waits for the cancellation of its charge."""
    reissue = (await reissue_requests.of_invoices(work.tx, [invoice_id])).get(invoice_id)
    return reissue or (await payment_requests.of_invoices(work.tx, [invoice_id])).get(invoice_id)


async def is_waiting(work: Work, invoice_id: UUID) -> bool:
    """Return whether a reissue or a manual payment of a locked invoice waits for the cancellation of its charge."""
    return await find(work, invoice_id) is not None


async def plan_polls(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """Schedule a poll of each locked invoice whose request still waits for the cancellation of a charge (D-171).

    The gateway may cancel the charge although its answer was lost. The pauses between the polls grow with the time
    since the request.
    """
    reissues = await reissue_requests.of_invoices(work.tx, invoice_ids)
    payments = await payment_requests.of_invoices(work.tx, invoice_ids)
    planned = {
        each.invoice_id: at
        for each in [*reissues.values(), *payments.values()]
        if (at := next_cancellation_at(each.requested_at, now=work.now)) is not None
    }
    if planned:
        await charge_polling.make_due_by(work.tx, list(planned), at=list(planned.values()))


async def drop_over(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """Drop the requests of locked invoices for which `is_over` is true."""
    reissues = await reissue_requests.of_invoices(work.tx, invoice_ids)
    payments = await payment_requests.of_invoices(work.tx, invoice_ids)
    over = {each.invoice_id for each in reissues.values() if is_over(work, each.in_progress_until)}
    over |= {each.invoice_id for each in payments.values() if is_over(work, each.in_progress_until)}
    if over:
        await drop(work, list(over))


async def drop_answered(work: Work, invoice_id: UUID) -> None:
    """Drop those requests of a locked invoice that a refund may drop (see `may_drop`)."""
    reissue = (await reissue_requests.of_invoices(work.tx, [invoice_id])).get(invoice_id)
    payment = (await payment_requests.of_invoices(work.tx, [invoice_id])).get(invoice_id)
    stored = [request for request in (reissue, payment) if request is not None]
    if stored and all([await may_drop(work, request) for request in stored]):
        await drop(work, [invoice_id])


async def drop(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """Drop the requests of locked invoices."""
    await reissue_requests.remove(work.tx, invoice_ids)
    await payment_requests.remove(work.tx, invoice_ids)


async def put_back(work: Work, invoice_id: UUID, earlier: StoredRequest | None) -> None:
    """Replace the stored request of a locked invoice by the one that was stored earlier, if any (D-171).

    Called after the gateway has refused the later cancellation. The earlier cancellation may still take effect.
    """
    await drop(work, [invoice_id])
    match earlier:
        case ReissueRequest():
            await reissue_requests.save(work.tx, earlier)
        case PaymentRequest():
            await payment_requests.save(work.tx, earlier)
        case None:
            pass
