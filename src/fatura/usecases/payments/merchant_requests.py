"""Requests of merchants that wait until the gateway has canceled a charge: reissues, manual payments, cancellations.

A request is in progress until `in_progress_until`, because its process may wait for the gateway's answer until then. A
process that was suspended may cancel the charge even later. So the stored request is kept for KEPT_FOR longer.

An invoice's newest request decides what happens when the charge is canceled. A poll applies the newest request, and a
process with an earlier request does not apply its own. If the gateway refuses to cancel the charge for a request, only
this request is dropped. The invoice's earlier requests stay stored (D-171).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.charging import next_cancellation_at
from fatura.gateways.port import CALL_TIMEOUT_SECONDS
from fatura.store import leases
from fatura.store.charging import charge_polling, charges, merchant_requests
from fatura.store.charging.merchant_requests import MerchantRequest
from fatura.usecases.transaction import Work

IN_PROGRESS_FOR = timedelta(seconds=CALL_TIMEOUT_SECONDS + 10)
"""How long the gateway may take to cancel the charge, in real time."""
KEPT_FOR = timedelta(hours=24)
"""While the charge can still be paid, a request is kept for this time after `in_progress_until`, in real time."""


def is_over(work: Work, request: MerchantRequest) -> bool:
    """Return whether KEPT_FOR has passed since `in_progress_until`, so that the request may be dropped."""
    return request.in_progress_until + KEPT_FOR <= work.deps.clock()


def is_in_progress(work: Work, requests: Collection[MerchantRequest], *, other_than: UUID | None) -> bool:
    """Return whether a reissue or a manual payment is in progress. The request with the id `other_than` is ignored."""
    return any(
        each.in_progress_until > work.deps.clock()
        for each in requests
        if not each.is_cancellation and each.request_id != other_than
    )


async def of_invoice(work: Work, invoice_id: UUID) -> Sequence[MerchantRequest]:
    """Return the requests of a locked invoice, the newest first."""
    return (await of_invoices(work, [invoice_id])).get(invoice_id, ())


async def of_invoices(work: Work, invoice_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[MerchantRequest]]:
    """Return the requests of locked invoices, the newest of each invoice first.

    If `in_progress_until` is too late to be valid, a host with a wrong clock wrote it (D-5). Then let the request
    be in progress for IN_PROGRESS_FOR from now on.
    """
    stored = await merchant_requests.of_invoices(work.tx, invoice_ids)
    now = work.deps.clock()
    return {id_: [await _limited(work, each, now=now) for each in found] for id_, found in stored.items()}


async def _limited(work: Work, request: MerchantRequest, *, now: datetime) -> MerchantRequest:
    if request.in_progress_until <= leases.horizon(now):
        return request
    limited = replace(request, in_progress_until=now + IN_PROGRESS_FOR)
    await merchant_requests.save(work.tx, limited)
    return limited


async def may_drop(work: Work, request: MerchantRequest) -> bool:
    """Return whether a refund or a part payment may drop a stored request (D-171).

    Two conditions must be met. The request is over. And the gateway has answered about the charge later than
    IN_PROGRESS_FOR after the request, when the call that cancels the charge has certainly ended. Without this answer,
    the gateway may have canceled the charge already. If the request were dropped then, no poll would apply it.
    """
    ended_at = request.requested_at + IN_PROGRESS_FOR
    return is_over(work, request) and await charges.was_asked(work.tx, request.charge_id, since=ended_at)


async def is_waiting(work: Work, invoice_id: UUID) -> bool:
    """Return whether a reissue or a manual payment of a locked invoice waits until the gateway has canceled the charge.

    If `may_drop` is true for each of these waiting requests, drop all requests of the invoice and return False.
    """
    waiting = [each for each in await of_invoice(work, invoice_id) if not each.is_cancellation]
    if waiting and all([await may_drop(work, each) for each in waiting]):
        await drop(work, [invoice_id])
        return False
    return bool(waiting)


async def store(work: Work, request: MerchantRequest) -> tuple[MerchantRequest, MerchantRequest | None]:
    """Store a request of a locked invoice with the next number.

    Return the request with its number, and the request that an earlier attempt stored under the same id, if any.
    """
    stored = await of_invoice(work, request.invoice_id)
    previous = next((each for each in stored if each.request_id == request.request_id), None)
    numbered = replace(request, number=max([each.number for each in stored], default=0) + 1)
    await merchant_requests.save(work.tx, numbered)
    return numbered, previous


async def end_unsure(work: Work, request: MerchantRequest) -> bool:
    """End an attempt for which the gateway's answer was lost. Return whether the request stays stored.

    An attempt is one HTTP request. If the merchant's request stays stored and the gateway has canceled the charge, a
    poll applies the request.

    - A reissue or a payment replaces the earlier requests, so drop them. But if a repeat of the request has begun, drop
      nothing, because the repeat decides.
    - A cancellation of the invoice drops no other requests, because it does not apply if the charge expires.
    - If the request is not stored any more, change nothing.
    """
    stored = await of_invoice(work, request.invoice_id)
    if await end_attempt(work, request) and not request.is_cancellation:
        earlier = [each.request_id for each in stored if each.number < request.number]
        await merchant_requests.remove(work.tx, earlier)
    return any(each.request_id == request.request_id for each in stored)


async def end_attempt(work: Work, request: MerchantRequest) -> bool:
    """Store that an attempt of a request is no longer in progress. Return False if this attempt is not stored."""
    for each in await of_invoice(work, request.invoice_id):
        if _is_same_attempt(each, request):
            await merchant_requests.save(work.tx, replace(each, in_progress_until=work.deps.clock()))
            return True
    return False


async def end_refused(work: Work, request: MerchantRequest, *, previous: MerchantRequest | None) -> bool:
    """End an attempt for which the gateway did not cancel the charge. Return whether the request stays stored.

    The request stays stored if an earlier attempt (`previous`) or a later attempt can still take effect.
    """
    stored = await of_invoice(work, request.invoice_id)
    if not any(_is_same_attempt(each, request) for each in stored):
        return any(each.request_id == request.request_id for each in stored)
    if previous is not None:
        await merchant_requests.save(work.tx, previous)
        return True
    await merchant_requests.remove(work.tx, [request.request_id])
    return False


def _is_same_attempt(one: MerchantRequest, other: MerchantRequest) -> bool:
    """Return whether both are the same attempt. A repeat with the same Idempotency-Key is another attempt."""
    return (one.request_id, one.requested_at) == (other.request_id, other.requested_at)


async def is_replaced(work: Work, request: MerchantRequest) -> bool:
    """Return whether a later request of a locked invoice decides what happens after the charge was canceled.

    A request that is not stored any more counts as older than all stored requests. A request to cancel the invoice does
    not replace another such request, because both have the same effect.
    """
    stored = await of_invoice(work, request.invoice_id)
    number = next((each.number for each in stored if each.request_id == request.request_id), 0)
    later = [each for each in stored if each.number > number]
    return any(not (each.is_cancellation and request.is_cancellation) for each in later)


async def undecided(work: Work, invoice_ids: Sequence[UUID]) -> set[UUID]:
    """Return the locked invoices whose newest request is in progress, and which have an earlier request too.

    If the gateway refuses the newest request, an earlier one applies. So a poll that finds the charge canceled must
    apply none of these requests yet.
    """
    stored, now = await of_invoices(work, invoice_ids), work.deps.clock()
    return {id_ for id_, found in stored.items() if len(found) > 1 and found[0].in_progress_until > now}


async def plan_polls(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """Schedule a poll of each locked invoice whose request still waits until the gateway cancels a charge (D-171).

    The poll shows whether the gateway has canceled the charge, even if the gateway's answer was lost. The pauses
    between the polls grow with the time since the request.
    """
    planned: dict[UUID, datetime] = {}
    for invoice_id, stored in (await of_invoices(work, invoice_ids)).items():
        next_at = [next_cancellation_at(each.requested_at, now=work.now) for each in stored]
        if due := [at for at in next_at if at is not None]:
            planned[invoice_id] = min(due)
    if planned:
        await charge_polling.make_due_by(work.tx, list(planned), at=list(planned.values()))


async def drop_over(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """Drop those requests of locked invoices for which `is_over` is true."""
    stored = await of_invoices(work, invoice_ids)
    over = [each.request_id for found in stored.values() for each in found if is_over(work, each)]
    if over:
        await merchant_requests.remove(work.tx, over)


async def drop(work: Work, invoice_ids: Sequence[UUID]) -> None:
    """Drop all requests of locked invoices."""
    await merchant_requests.remove_all(work.tx, invoice_ids)
