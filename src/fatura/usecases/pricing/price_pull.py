"""Call price endpoints: reserve the calls, make them, record the answers (spec 4.7, D-29 to D-32)."""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.errors import RATE_LIMITED, UNAVAILABLE, EngineError, account_suspended, require
from fatura.domain.pricing import CallMode, PriceAnswer
from fatura.observability import log
from fatura.outbound.http import DEADLINE_SECONDS, MAX_WAIT_SECONDS, MerchantSession, OutOfResourcesError
from fatura.outbound.price_endpoint import call_price_endpoint
from fatura.store import suspension
from fatura.store.billing import invoices
from fatura.store.db import DatabaseUnavailableError
from fatura.store.pricing import price_pulls, pricing_attempts
from fatura.store.pricing.price_pulls import ItemKey, PendingItem
from fatura.store.pricing.pricing_attempts import AnsweredCall, PriceCall
from fatura.usecases.accounts.integration_secret import signing_secrets
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.database_clock import WrongClockError
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.open_call_limit import Places
from fatura.usecases.operations import call_counts
from fatura.usecases.pricing import price_answers
from fatura.usecases.transaction import (
    DATABASE_FAILURES,
    LaneName,
    Work,
    in_audited_transaction,
    in_transaction,
)
from fatura.views.invoices import RetriedView
from fatura.views.price_calls import PricePeriodView, PriceReferenceView, PriceRequestView

LEASE = timedelta(seconds=45)
"""How long a worker leases an item, in real time. This leaves time to make the call and to record the answer."""
SEND_WITHIN_SECONDS = 20
"""Maximum time between reserving a call and making it, so that the call ends before the lease expires."""
RECORD_WITHIN_SECONDS = 40
"""How long a worker tries to record answers, counted from the reservation of the calls."""
RECORD_RETRY_SECONDS = 0.5
MAX_RETRIES = 10
"""Maximum calls per item that a client may request within RETRY_WINDOW, on the account's clock."""
RETRY_WINDOW = timedelta(minutes=1)
RETRY_AFTER_SECONDS = 10
assert (
    LEASE.total_seconds() > RECORD_WITHIN_SECONDS > SEND_WITHIN_SECONDS + MAX_WAIT_SECONDS + DEADLINE_SECONDS
)


@dataclass(frozen=True, slots=True)
class CallBatch:
    """Calls reserved in one transaction, the secrets that sign them, and when they were reserved, on two clocks."""

    calls: Sequence[PriceCall]
    secrets: tuple[str, ...]
    reserved_at: datetime
    reserved_monotonic: float

    def is_stale(self, real_now: datetime) -> bool:
        """Return whether the calls were reserved too long ago to be sent.

        Both clocks are read, because either may stop while the machine is suspended.
        """
        waited = real_now - self.reserved_at
        return (
            waited > timedelta(seconds=SEND_WITHIN_SECONDS)
            or time.monotonic() - self.reserved_monotonic > SEND_WITHIN_SECONDS
        )


async def pull(deps: Deps, account: Account, *, limit: int) -> int:
    """Record lost calls, emit due warnings, and make up to `limit` due price calls concurrently.

    Return the sum of lost calls, warnings and calls made. If at least `limit` calls are due, the lane is
    notified, so that the next batch does not wait for this batch's slowest call (D-31).
    """
    done = 0
    for step in (_settle_lost, _warn):
        try:
            done += await step(deps, account, limit=limit)
        except (DatabaseUnavailableError, WrongClockError):
            raise
        except Exception:  # noqa: BLE001 - retried in the next run; this run still makes the new calls
            log.exception("pricing.follow_up_failed", account_id=str(account.account_id))
    batch = await in_transaction(deps, account, _reserve_due, limit=limit)
    return await _call_and_record(deps, account, batch) + done


async def retry(deps: Deps, account: Account, invoice_id: UUID, *, draft: AuditDraft | None) -> RetriedView:
    """Call the endpoint for each pending item of an invoice now, outside the schedule; wait for the answers (D-32).

    Items for which a concurrent retry has an open call are skipped.
    Raises EngineError: `engine.not_found`, `engine.rate_limited`, `engine.unavailable`,
    `engine.account_suspended`.
    """
    with deps.open_calls.places(account.account_id) as places:
        batch = await in_audited_transaction(deps, account, draft, _reserve_retry, invoice_id, places)
        made = await _call_and_record(deps, account, batch)
    if batch.calls and not made:
        busy = "No call could be made now; try again soon."
        raise EngineError(UNAVAILABLE, busy, retry_after_seconds=RETRY_AFTER_SECONDS)
    return RetriedView(retried=made)


async def _settle_lost(deps: Deps, account: Account, *, limit: int) -> int:
    """Record a timeout for up to `limit` calls that no worker recorded before their lease expired (D-105)."""
    return await in_transaction(deps, account, price_answers.settle_lost, limit=limit)


async def _warn(deps: Deps, account: Account, *, limit: int) -> int:
    return await in_transaction(deps, account, price_answers.warn, limit=limit)


async def _reserve_due(work: Work, *, limit: int) -> CallBatch:
    """Reserve due calls. While the account is suspended, reserve none (D-242)."""
    if not await suspension.may_work(work.tx):
        return await reserve(work, (), by_hand=False)
    real_now, monotonic_now = work.deps.clock(), time.monotonic()
    items = await price_pulls.claim(
        work.tx, now=work.now, real_now=real_now, lease_until=real_now + LEASE, limit=limit
    )
    if len(items) == limit:
        work.notify(LaneName.PRICING)
    calls = await each_alone_if_one_fails(work, items, partial(_store_calls, by_hand=False), put_off=_put_off)
    return await _batch(work, calls, reserved_at=real_now, reserved_monotonic=monotonic_now)


async def _put_off(work: Work, item: ItemKey) -> None:
    invoice_id, position = item
    log.exception("pricing.call_put_off", invoice_id=str(invoice_id), position=position)
    await price_pulls.put_off(work.tx, item, until=work.now + PUT_OFF_BY)


async def _reserve_retry(work: Work, invoice_id: UUID, places: Places) -> CallBatch:
    # the account may have been suspended after the request was admitted
    if not await suspension.may_work(work.tx):
        raise account_suspended()
    states = await invoices.lock(work.tx, [invoice_id])
    state = require(states.get(invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    work.audit(invoice_id, before={}, after={})
    if state not in price_answers.TAKES_VALUES:
        return await reserve(work, (), by_hand=True)
    await _check_retry_rate(work, invoice_id)
    items = await price_pulls.of_invoice(work.tx, invoice_id, real_now=work.deps.clock())
    places.take(len(items))
    return await reserve(work, items, by_hand=True)


async def _check_retry_rate(work: Work, invoice_id: UUID) -> None:
    """Check that clients requested fewer than MAX_RETRIES price calls for each item in the last RETRY_WINDOW.

    Raises EngineError: `engine.rate_limited`.
    """
    since = work.now - RETRY_WINDOW
    if await pricing_attempts.most_by_hand(work.tx, invoice_id, since=since) >= MAX_RETRIES:
        raise EngineError(
            RATE_LIMITED,
            f"An invoice's prices may be retried {MAX_RETRIES} times a minute; wait for the endpoint to be mended.",
            retry_after_seconds=int(RETRY_WINDOW.total_seconds()),
        )


async def reserve(work: Work, items: Sequence[ItemKey], *, by_hand: bool) -> CallBatch:
    """Store a call for each given item that is pending. The caller must commit before it makes the calls."""
    real_now, monotonic_now = work.deps.clock(), time.monotonic()
    calls = await _store_calls(work, items, by_hand=by_hand) if items else ()
    return await _batch(work, calls, reserved_at=real_now, reserved_monotonic=monotonic_now)


async def _batch(
    work: Work, calls: Sequence[PriceCall], *, reserved_at: datetime, reserved_monotonic: float
) -> CallBatch:
    secrets = await signing_secrets(work) if calls else ()
    return CallBatch(calls, secrets, reserved_at, reserved_monotonic)


async def _store_calls(work: Work, items: Sequence[ItemKey], *, by_hand: bool) -> Sequence[PriceCall]:
    pending = await price_pulls.pending_items(work.tx, items)
    numbers = await pricing_attempts.take_numbers(
        work.tx, [(each.invoice_id, each.position) for each in pending], now=work.now
    )
    calls = [
        PriceCall(
            each.invoice_id,
            each.position,
            numbers[each.invoice_id, each.position],
            by_hand,
            each.url,
            each.cap_cents,
            _request(work, each).json_text(),
        )
        for each in pending
    ]
    await pricing_attempts.insert(work.tx, calls, created_at=work.now, open_until=work.deps.clock() + LEASE)
    return calls


def _request(work: Work, item: PendingItem) -> PriceRequestView:
    return PriceRequestView(
        version=1,
        mode=CallMode.LIVE,
        pricing_request_id=str(item.item_id),
        product=PriceReferenceView(external_ref=item.product_ref or str(item.product_id)),
        subscription=PriceReferenceView(external_ref=item.subscription_ref or str(item.subscription_id)),
        customer=PriceReferenceView(external_ref=item.customer_ref),
        period=PricePeriodView(start=item.period_start, end=item.period_end),
        cycle=item.cycle,
        currency=work.account.currency,
    )


async def _call_and_record(deps: Deps, account: Account, batch: CallBatch) -> int:
    """Make the calls concurrently, and record the answers as they arrive.

    Answers that arrive together are recorded in one transaction. Withdraw the calls that could not be made, so that
    they do not count as failures of the endpoint. Return how many calls were made.
    """
    if not batch.calls:
        return 0
    not_made: list[PriceCall] = []
    give_up_at = batch.reserved_monotonic + RECORD_WITHIN_SECONDS
    async with deps.merchants.session(account) as session:
        running = {asyncio.create_task(_call(deps, session, batch, call)) for call in batch.calls}
        try:
            while running:
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                answered = _results(ended)
                not_made += [call for call, answer in answered if answer is None]
                if made := [(call, answer) for call, answer in answered if answer is not None]:
                    await _record(deps, account, made, give_up_at=give_up_at)
        finally:
            for each in running:
                each.cancel()
    if not_made:
        await _withdraw(deps, account, not_made)
    return len(batch.calls) - len(not_made)


async def _withdraw(deps: Deps, account: Account, calls: Sequence[PriceCall]) -> None:
    """Delete calls that were not made. If the database fails, a later run records these calls as lost."""
    try:
        await in_transaction(deps, account, price_answers.withdraw, calls)
    except DATABASE_FAILURES as error:
        log.warning("pricing.calls_not_withdrawn", calls=len(calls), error=error)


async def _call(
    deps: Deps, session: MerchantSession, batch: CallBatch, call: PriceCall
) -> tuple[PriceCall, PriceAnswer | None]:
    """Make a call. The answer is None if no call was made.

    No call is made if this process has no free sockets, or if the worker was suspended so long that its lease may have
    expired.
    """
    real_now = deps.clock()
    if batch.is_stale(real_now):
        log.warning(
            "pricing.call_skipped", invoice_id=str(call.invoice_id), reason="the worker was suspended"
        )
        return call, None
    try:
        answer = await call_price_endpoint(
            session,
            call.url,
            body=call.request_body,
            cap_cents=call.cap_cents,
            secrets=batch.secrets,
            timestamp=int(real_now.timestamp()),
        )
    except OutOfResourcesError:  # logged by the dialer
        return call, None
    return call, answer


def _results(
    ended: Collection[asyncio.Task[tuple[PriceCall, PriceAnswer | None]]],
) -> list[tuple[PriceCall, PriceAnswer | None]]:
    """Return the answers, ordered by item. Log each call that raised an exception; it is recorded as lost later."""
    answered: list[tuple[PriceCall, PriceAnswer | None]] = []
    for each in ended:
        failure = each.exception()
        if failure is not None:
            log.error("pricing.call_failed", exc_info=failure)
            continue
        call, answer = each.result()
        if answer is not None:
            call_counts.price_calls.labels(answer.outcome).inc()
        answered.append((call, answer))
    return sorted(answered, key=lambda pair: pair[0].item)


async def _record(
    deps: Deps, account: Account, answered: Sequence[AnsweredCall], *, give_up_at: float
) -> None:
    """Record answers; retry while the database is unavailable or busy, so that no call is repeated (spec 4.7 rule 1).

    If an answer is not recorded by `give_up_at` (monotonic), an error is logged, and the call is later recorded as
    lost. Recording is idempotent, so it is safe to repeat if the answer to the commit was lost.
    """
    while True:
        try:
            await in_transaction(deps, account, price_answers.record, answered)
        except DATABASE_FAILURES as error:
            if time.monotonic() < give_up_at:
                await asyncio.sleep(RECORD_RETRY_SECONDS)
                continue
            log.error("pricing.answers_not_recorded", items=_items(answered), error=error)
        except Exception:  # noqa: BLE001 - the other answers must still be recorded
            log.exception("pricing.answers_not_recorded", items=_items(answered))
            for each in answered if len(answered) > 1 else ():
                await _record(deps, account, [each], give_up_at=give_up_at)
        return


def _items(answered: Sequence[AnsweredCall]) -> list[str]:
    return [f"{call.invoice_id}/{call.position}" for call, _ in answered]
