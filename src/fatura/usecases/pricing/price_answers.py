"""What each answer of a price endpoint means for its invoice, recorded in sets (spec 4.7, D-24, D-29, D-32)."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from fatura.domain.invoice import PricingSource, PricingStatus
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.domain.pricing import (
    CLOSING,
    WARN_AFTER,
    PriceAnswer,
    PricingAttempt,
    PricingOutcome,
    next_attempt_at,
)
from fatura.outbound.price_endpoint import PriceReply
from fatura.store.pricing import item_values, price_pulls, pricing_attempts
from fatura.store.pricing.item_values import ItemValue
from fatura.store.pricing.price_pulls import ItemKey, LockedPull
from fatura.store.pricing.pricing_attempts import AttemptKey, Settlement
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.transaction import Work

OPEN = frozenset({InvoiceStatus.DRAFT, InvoiceStatus.AWAITING_VALUE})
"""The states in which an item still takes a value."""
MAX_TOLD_CHARS = 2000
"""How much of a raw answer an alert carries; the invoice's attempts show all of it."""
_AGAIN = " It is asked again by itself."
LOST = PriceAnswer(PricingOutcome.TIMEOUT, problem="the call's outcome was lost")


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call and its reply; null for one whose maker died."""

    key: AttemptKey
    by_hand: bool
    reply: PriceReply | None

    @property
    def answer(self) -> PriceAnswer:
        """Return what the call came to."""
        return LOST if self.reply is None else self.reply.answer

    @property
    def item(self) -> ItemKey:
        """Return which item it was made for."""
        return self.key.invoice_id, self.key.position


async def record(work: Work, ended: Sequence[EndedCall]) -> None:
    """Settle calls, close what they priced, put off what failed, and move the invoices.

    A value counts only while its item is pending; what comes second is kept as an attempt and changes nothing (D-32).
    """
    states = await price_pulls.lock_invoices(work.tx, sorted({call.key.invoice_id for call in ended}))
    await work.refresh()
    settled = await pricing_attempts.settle(work.tx, [_settlement(call) for call in ended])
    ended = [call for call in ended if call.key in settled]
    live = [call for call in ended if states[call.key.invoice_id] in OPEN]
    await item_values.close(work.tx, _values(live))
    failed = await _put_off(work, ended, live=live)
    missed = frozenset(pull.invoice_id for _, pull in failed)
    await report_values(work, {call.key.invoice_id for call in live}, missed=missed)
    for call, pull in failed:
        if pull.next_attempt_at is None and not call.by_hand:
            await _tell_exhausted(work, call, pull)


def _settlement(call: EndedCall) -> Settlement:
    reply = call.reply
    if reply is None:
        return Settlement(call.key, LOST.outcome, None, None, None)
    return Settlement(
        call.key, call.answer.outcome, reply.response_status, reply.latency_ms, reply.response_body
    )


def _values(live: Iterable[EndedCall]) -> list[ItemValue]:
    """Return the value that each item's first closing answer brought."""
    values: dict[ItemKey, ItemValue] = {}
    for call in live:
        answer = call.answer
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


async def _put_off(
    work: Work, ended: Sequence[EndedCall], *, live: Sequence[EndedCall]
) -> Sequence[tuple[EndedCall, LockedPull]]:
    """Give leases back, end the pulls of closed items, set the next call of failed ones; return those."""
    pulls = {
        (pull.invoice_id, pull.position): pull
        for pull in await price_pulls.lock(work.tx, [call.item for call in ended])
    }
    failed: list[tuple[EndedCall, LockedPull]] = []
    for call in live:
        pull = pulls[call.item]
        if pull.pending:
            pulls[call.item] = _after_failure(work, call, pull)
            failed.append((call, pulls[call.item]))
        else:
            pulls[call.item] = replace(pull, next_attempt_at=None, warn_at=None)
    released = {call.item for call in ended if not call.by_hand}
    await price_pulls.save(work.tx, list(pulls.values()), released=[item in released for item in pulls])
    return failed


def _after_failure(work: Work, call: EndedCall, pull: LockedPull) -> LockedPull:
    """Return a pull after a failed call; one made by hand leaves the schedule as it was (D-32)."""
    if pull.first_failed_at is None:
        pull = replace(pull, first_failed_at=work.now, warn_at=work.now + WARN_AFTER)
    if call.by_hand:
        return pull
    assert pull.first_attempt_at is not None, "a failed call was made"
    failures = pull.failures + 1
    jitter = random.randrange(1001)  # noqa: S311 - spreads retries, guards nothing
    due_at = next_attempt_at(pull.first_attempt_at, failures, now=work.now, jitter_permille=jitter)
    return replace(pull, failures=failures, next_attempt_at=due_at)


async def report_values(
    work: Work, invoice_ids: Iterable[UUID], *, missed: frozenset[UUID] = frozenset()
) -> None:
    """Report the invoices whose values are all closed now, and those where one was `missed` (spec 3.3, D-24)."""
    reports: list[Report] = []
    for invoice_id, known in (await item_values.closedness(work.tx, sorted(invoice_ids))).items():
        if not known.pending:
            reports.append(Report(invoice_id, Fact.VALUES_CLOSED, total_cents=known.total_cents))
        elif invoice_id in missed:
            reports.append(Report(invoice_id, Fact.VALUE_MISSED))
    await invoice_moves.report(work, reports)


async def _tell_exhausted(work: Work, call: EndedCall, pull: LockedPull) -> None:
    reply = call.reply
    error = _error(
        pull,
        code="pricing_exhausted",
        message=f"The last call failed: {call.answer.problem}. Release the item with retry-pricing or a value.",
        raw={
            "outcome": str(call.answer.outcome),
            "responseStatus": reply and reply.response_status,
            "responseBody": reply and _told(reply.response_body),
        },
    )
    await invoice_moves.alert(work, pull.invoice_id, "invoice.pricing_exhausted", error=error)


async def warn(work: Work, *, limit: int) -> int:
    """Tell of items that have been failing for 15 minutes, each once; return how many (spec 6.4, D-29)."""
    due = await price_pulls.due_warnings(work.tx, now=work.now, limit=limit)
    if not due:
        return 0
    states = await price_pulls.lock_invoices(work.tx, sorted({invoice_id for invoice_id, _ in due}))
    failures = await pricing_attempts.last_failures(work.tx, due)
    pulls = [pull for pull in await price_pulls.lock(work.tx, due) if pull.warn_at is not None]
    for pull in pulls:
        if pull.pending and states[pull.invoice_id] in OPEN:
            await _tell_warning(work, pull, failures[pull.invoice_id, pull.position])
    await price_pulls.save(
        work.tx, [replace(pull, warn_at=None) for pull in pulls], released=[False] * len(pulls)
    )
    return len(due)


async def _tell_warning(work: Work, pull: LockedPull, failure: PricingAttempt) -> None:
    error = _error(
        pull,
        code="pricing_failing",
        message="The price endpoint has been failing for 15 minutes."
        + (_AGAIN if pull.next_attempt_at else ""),
        raw={
            "outcome": str(failure.outcome),
            "responseStatus": failure.response_status,
            "responseBody": _told(failure.response_body),
        },
    )
    await invoice_moves.alert(work, pull.invoice_id, "invoice.pricing_warning", error=error)


def _told(body: str | None) -> str | None:
    return None if body is None else body[:MAX_TOLD_CHARS]


def _error(pull: LockedPull, *, code: str, message: str, raw: Mapping[str, object]) -> dict[str, object]:
    """Return an alert's `data.error`, with the raw answer that the endpoint gave."""
    item = {"itemId": str(pull.item_id), "productId": str(pull.product_id)}
    return {"code": code, "message": message} | item | dict(raw)
