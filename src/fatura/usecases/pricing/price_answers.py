"""Store the answers of price calls in batches (spec 4.7, D-24, D-29, D-32).

The answers set the values of items, reschedule failed calls, and move invoices.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from fatura.domain.invoice import PricingSource, PricingStatus
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.domain.pricing import CLOSING, WARN_AFTER, PriceAnswer, PricingOutcome, next_attempt_at
from fatura.observability import log
from fatura.store import leases
from fatura.store.billing import invoices
from fatura.store.pricing import item_values, price_pulls, pricing_attempts
from fatura.store.pricing.item_values import ItemValue
from fatura.store.pricing.price_pulls import ItemKey, PricePull
from fatura.store.pricing.pricing_attempts import AnsweredCall, CallKey, PriceCall
from fatura.store.subscriptions import erasures
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.transaction import Work
from fatura.views.events import PricingErrorView

TAKES_VALUES = frozenset({InvoiceStatus.DRAFT, InvoiceStatus.AWAITING_VALUE})
"""The invoice states in which items may get values."""
MAX_ALERT_BODY_CHARS = 2000
"""Maximum length of an endpoint's raw answer in an event; the invoice's attempts show the whole answer."""
NOT_MADE_RETRY = timedelta(seconds=10)
"""If this process could not make a scheduled call, the call is tried again after this time."""
LOST = PriceAnswer(PricingOutcome.TIMEOUT, problem="the call's outcome was lost")
LOST_RETRY = timedelta(seconds=45)
"""If a lost call cannot be recorded, recording is tried again after this time, in real time."""
assert LOST_RETRY < leases.LONGEST_LEASE, "otherwise the call would count as lost at once"


async def record(work: Work, answered: Sequence[AnsweredCall]) -> None:
    """Store the calls' outcomes, set item values, reschedule failed calls, and move the invoices to their next states.

    An item keeps its first value; a later answer is only stored as an attempt (D-32). If the final scheduled call for
    an item failed, emit `invoice.pricing_exhausted`. For an erased customer, store no text of the answers (D-229).
    """
    invoice_ids = sorted({call.invoice_id for call, _ in answered})
    states = await invoices.lock(work.tx, invoice_ids)
    await work.refresh()
    erased = await erasures.invoices_of_erased(work.tx, invoice_ids)
    answered = [(call, answer.erased() if call.invoice_id in erased else answer) for call, answer in answered]
    settled = await pricing_attempts.settle(work.tx, answered)
    live = [(call, answer) for call, answer in settled if states[call.invoice_id] in TAKES_VALUES]
    await item_values.close(work.tx, _values(live))
    still_pending = await _reschedule(work, settled, live=live)
    missed = frozenset(call.invoice_id for call, _ in live if call.item in still_pending)
    await report_values(work, {call.invoice_id for call, _ in live}, missed=missed)
    for call, answer in live:
        pull = still_pending.get(call.item)
        if pull is not None and pull.next_attempt_at is None and not call.by_hand:
            detail = (
                f"The last call failed: {answer.problem}. Release the item with retry-pricing or a value."
            )
            type_, code = "invoice.pricing_exhausted", "pricing_exhausted"
            await _alert(work, pull, answer, type_=type_, code=code, detail=detail)


async def settle_lost(work: Work, *, limit: int) -> int:
    """Record a timeout for up to `limit` lost calls, whose answers were not recorded before the lease expired (D-105).

    Put off each call that cannot be recorded (D-186). Return the number of lost calls.
    """
    lost = await pricing_attempts.lost(work.tx, real_now=work.deps.clock(), limit=limit)
    await each_alone_if_one_fails(work, sorted(lost), _record_lost, put_off=_put_off_lost)
    return len(lost)


async def _record_lost(work: Work, keys: Sequence[CallKey]) -> Sequence[CallKey]:
    await record(work, [(call, LOST) for call in await pricing_attempts.read(work.tx, keys)])
    return keys


async def _put_off_lost(work: Work, key: CallKey) -> None:
    """Put off recording a lost call by LOST_RETRY, and put off the call's item by PUT_OFF_BY.

    While the item is not due, it does not stop the test clock.
    """
    invoice_id, position, _ = key
    log.exception("pricing.lost_call_put_off", invoice_id=str(invoice_id), position=position)
    open_until, due_from = work.deps.clock() + LOST_RETRY, work.now + PUT_OFF_BY
    await pricing_attempts.put_off_lost(work.tx, key, open_until=open_until, due_from=due_from)


async def withdraw(work: Work, calls: Sequence[PriceCall]) -> None:
    """Delete calls that this process could not make. The scheduled ones become due again after NOT_MADE_RETRY.

    A deleted call does not count as a failed attempt (D-29). A call that is already recorded as lost is kept.
    """
    await invoices.lock(work.tx, sorted({call.invoice_id for call in calls}))
    await price_pulls.lock(work.tx, [call.item for call in calls])
    await work.refresh()
    await pricing_attempts.withdraw(work.tx, calls, due_at=work.now + NOT_MADE_RETRY)


def _values(live: Iterable[AnsweredCall]) -> list[ItemValue]:
    """Return the items' new values. If several answers for an item have a value, the first of these answers counts."""
    values: dict[ItemKey, ItemValue] = {}
    for call, answer in live:
        if answer.outcome in CLOSING:
            skipped = answer.outcome is PricingOutcome.SKIP
            value = ItemValue(
                *call.item,
                source=PricingSource.ENDPOINT,
                status=PricingStatus.SKIPPED if skipped else PricingStatus.PRICED,
                amount_cents=None if skipped else answer.amount_cents,
                description=answer.description,
            )
            values.setdefault(call.item, value)
    return list(values.values())


async def _reschedule(
    work: Work, settled: Sequence[AnsweredCall], *, live: Sequence[AnsweredCall]
) -> Mapping[ItemKey, PricePull]:
    """Release the leases, end the schedules of items that have a value, and reschedule the pending items.

    Return the schedules of the pending items.
    """
    locked = await price_pulls.lock(work.tx, [call.item for call, _ in settled])
    pulls = {pull.item: pull for pull in locked}
    for call, _ in live:
        pull = pulls[call.item]
        pulls[call.item] = _after_failure(work, call, pull) if pull.pending else pull.ended()
    released = {call.item for call, _ in settled if not call.by_hand}
    await price_pulls.save(work.tx, list(pulls.values()), released=released)
    return {call.item: pulls[call.item] for call, _ in live if pulls[call.item].pending}


def _after_failure(work: Work, call: PriceCall, pull: PricePull) -> PricePull:
    """Return an item's schedule after a failed call. Calls requested by clients do not delay scheduled ones (D-32)."""
    if pull.first_failed_at is None:
        pull = replace(pull, first_failed_at=work.now, warn_at=work.now + WARN_AFTER)
    if call.by_hand:
        return pull
    assert pull.first_attempt_at is not None, "a failed call was made"
    failures = pull.failures + 1
    jitter = random.randrange(1001)  # noqa: S311 - jitter, no cryptography
    due_at = next_attempt_at(pull.first_attempt_at, failures, now=work.now, jitter_permille=jitter)
    return replace(pull, failures=failures, next_attempt_at=due_at)


async def report_values(work: Work, invoice_ids: Iterable[UUID], *, missed: Collection[UUID] = ()) -> None:
    """Report to `invoice_moves` which invoices have all their values (spec 3.3, D-24).

    Report VALUES_CLOSED for an invoice without pending items, and VALUE_MISSED for any other invoice in `missed`.
    """
    reports: list[Report] = []
    for invoice_id, totals in (await item_values.totals(work.tx, sorted(invoice_ids))).items():
        if not totals.pending:
            reports.append(Report(invoice_id, Fact.VALUES_CLOSED, total_cents=totals.total_cents))
        elif invoice_id in missed:
            reports.append(Report(invoice_id, Fact.VALUE_MISSED))
    await invoice_moves.report(work, reports)


async def warn(work: Work, *, limit: int) -> int:
    """Emit `invoice.pricing_warning` for up to `limit` items whose calls have failed for 15 minutes (D-29).

    Return the number of warnings that were due. No event is emitted for an item that needs no value any more.
    """
    due = await price_pulls.due_warnings(work.tx, now=work.now, limit=limit)
    await each_alone_if_one_fails(work, sorted(due), _warn_of, put_off=_put_off_warning)
    return len(due)


async def _put_off_warning(work: Work, item: ItemKey) -> None:
    invoice_id, position = item
    log.exception("pricing.warning_put_off", invoice_id=str(invoice_id), position=position)
    await price_pulls.put_off_warning(work.tx, item, until=work.now + PUT_OFF_BY)


async def _warn_of(work: Work, due: Sequence[ItemKey]) -> Sequence[ItemKey]:
    states = await invoices.lock(work.tx, sorted({invoice_id for invoice_id, _ in due}))
    answers = await pricing_attempts.last_answers(work.tx, due)
    pulls = [pull for pull in await price_pulls.lock(work.tx, due) if pull.warn_at is not None]
    for pull in pulls:
        if pull.pending and states[pull.invoice_id] in TAKES_VALUES:
            detail = "The price endpoint has been failing for 15 minutes."
            if pull.next_attempt_at:
                detail += " It will be called again automatically."
            type_, code = "invoice.pricing_warning", "pricing_failing"
            await _alert(work, pull, answers[pull.item], type_=type_, code=code, detail=detail)
    await price_pulls.save(work.tx, [replace(pull, warn_at=None) for pull in pulls])
    return due


async def _alert(
    work: Work, pull: PricePull, answer: PriceAnswer, *, type_: str, code: str, detail: str
) -> None:
    """Emit an event about an item that has no value yet, with the endpoint's raw answer (spec 6.4)."""
    body = answer.response_body
    error = PricingErrorView(
        code=code,
        detail=detail,
        item_id=str(pull.item_id),
        product_id=str(pull.product_id),
        outcome=answer.outcome,
        response_status=answer.response_status,
        response_body=None if body is None else body[:MAX_ALERT_BODY_CHARS],
    )
    await invoice_moves.alert(work, pull.invoice_id, type_, error=error)
