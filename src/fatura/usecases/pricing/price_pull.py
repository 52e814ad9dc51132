"""The price pull: reserve, call, record (spec 4.7, D-29 to D-32). `price_answers` decides what an answer means."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.errors import RATE_LIMITED, EngineError, not_found
from fatura.domain.pricing import CallMode, PriceRequest
from fatura.domain.shapes import Shape
from fatura.observability import log
from fatura.outbound.http import DEADLINE_SECONDS, MerchantSession
from fatura.outbound.price_endpoint import PriceReply, ask
from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError
from fatura.store.pricing import price_pulls, pricing_attempts
from fatura.store.pricing.price_pulls import ItemKey, PriceQuestion
from fatura.store.pricing.pricing_attempts import AttemptKey, NewPricingAttempt
from fatura.usecases.accounts.integration_secret import signing_secrets
from fatura.usecases.deps import Deps
from fatura.usecases.lane_names import LaneName
from fatura.usecases.operations import call_counts
from fatura.usecases.pricing import price_answers
from fatura.usecases.pricing.price_answers import EndedCall
from fatura.usecases.transaction import Work, in_transaction

LEASE = timedelta(seconds=45)
"""How long a caller owns an item, in real time: a call's 10 seconds, and time to record it on a busy machine."""
SEND_WITHIN_SECONDS = 20
"""A caller that was frozen asks nothing later than this after reserving: the item may be closed by then."""
RECORD_WITHIN_SECONDS = 40
"""How long after reserving an answer is tried to be recorded while the database is away or busy."""
RECORD_AGAIN_SECONDS = 0.5
MOST_RETRIES = 10
"""How often an item may be asked for by hand within RETRIES_WITHIN, on the account's clock."""
RETRIES_WITHIN = timedelta(minutes=1)
assert LEASE.total_seconds() > RECORD_WITHIN_SECONDS > SEND_WITHIN_SECONDS + DEADLINE_SECONDS


@dataclass(frozen=True, slots=True)
class PriceCall:
    """A committed attempt, ready to be made."""

    key: AttemptKey
    by_hand: bool
    attempt: NewPricingAttempt


@dataclass(frozen=True, slots=True)
class Reserved:
    """What one transaction took on: the calls to make, the secrets that sign them, and since when, on both clocks."""

    calls: Sequence[PriceCall]
    secrets: tuple[str, ...]
    reserved_at: datetime
    reserved_monotonic: float

    def is_stale(self, real_now: datetime) -> bool:
        """Say whether the caller stood still for too long: either clock may have stopped with the machine."""
        waited = real_now - self.reserved_at
        return (
            waited > timedelta(seconds=SEND_WITHIN_SECONDS)
            or time.monotonic() - self.reserved_monotonic > SEND_WITHIN_SECONDS
        )


async def pull(deps: Deps, account: Account, *, limit: int) -> int:
    """Make up to `limit` due price calls, all at once; return how many, with the warnings and lost calls.

    A full batch hints that there may be more: the next one need not wait for this one's slowest call (D-31).
    """

    async def reserve(work: Work) -> Reserved:
        real_now = deps.clock()
        items = await price_pulls.claim(
            work.tx, now=work.now, real_now=real_now, lease_until=real_now + LEASE, limit=limit
        )
        if len(items) == limit:
            work.notify(LaneName.PRICING)
        return await _reserve(work, items, by_hand=False)

    async def warn(work: Work) -> int:
        return await price_answers.warn(work, limit=limit)

    done = await _tend(account, lambda: _settle_lost(deps, account, limit=limit))
    done += await _tend(account, lambda: in_transaction(deps, account, warn))
    reserved = await in_transaction(deps, account, reserve)
    await _make(deps, account, reserved)
    return len(reserved.calls) + done


async def _tend(account: Account, task: Callable[[], Awaitable[int]]) -> int:
    """Do what is left over from earlier calls; what of it fails is told, and holds up no new ones."""
    try:
        return await task()
    except DatabaseUnavailableError:
        raise
    except Exception:  # noqa: BLE001 - told in full; it is tried again at the next pass
        log.exception("pricing.not_tended", account_id=str(account.account_id))
        return 0


async def retry(deps: Deps, account: Account, invoice_id: UUID) -> Shape:
    """Call now for every pending item of an invoice, outside the schedule, and answer when the calls have ended (D-32).

    An item that somebody else's retry is asking for right now is left to it.
    Raises EngineError: `engine.not_found`, `engine.rate_limited`.
    """

    async def reserve(work: Work) -> Reserved:
        states = await price_pulls.lock_invoices(work.tx, [invoice_id])
        if invoice_id not in states:
            raise not_found("invoice", invoice_id)
        await work.refresh()
        if states[invoice_id] not in price_answers.OPEN:
            return await _reserve(work, (), by_hand=True)
        await _check_pace(work, invoice_id)
        items = await price_pulls.of_invoice(work.tx, invoice_id, real_now=deps.clock())
        deps.calls_by_hand.check(account.account_id, len(items))
        return await _reserve(work, items, by_hand=True)

    reserved = await in_transaction(deps, account, reserve)
    with deps.calls_by_hand.opened(account.account_id, len(reserved.calls)):
        await _make(deps, account, reserved)
    return {"retried": len(reserved.calls)}


async def _check_pace(work: Work, invoice_id: UUID) -> None:
    """Keep retries by hand from filling the record of attempts. Raises EngineError: `engine.rate_limited`."""
    since = work.now - RETRIES_WITHIN
    if await pricing_attempts.most_by_hand(work.tx, invoice_id, since=since) >= MOST_RETRIES:
        raise EngineError(
            RATE_LIMITED,
            f"An invoice's prices may be retried {MOST_RETRIES} times a minute; wait for the endpoint to be mended.",
            retry_after_seconds=int(RETRIES_WITHIN.total_seconds()),
        )


async def _settle_lost(deps: Deps, account: Account, *, limit: int) -> int:
    """Count the calls whose makers died as time-outs; their items are put off like any failure's."""

    async def find(work: Work) -> Sequence[EndedCall]:
        lost = await pricing_attempts.lost(work.tx, real_now=deps.clock(), limit=limit)
        return [EndedCall(each.key, each.by_hand, None) for each in lost]

    lost = await in_transaction(deps, account, find)
    if lost:
        await _record(deps, account, lost, give_up_at=time.monotonic())
    return len(lost)


async def _reserve(work: Work, items: Sequence[ItemKey], *, by_hand: bool) -> Reserved:
    """Commit to a call for each item before its first byte leaves."""
    real_now, monotonic_now = work.deps.clock(), time.monotonic()
    if not items:
        return Reserved((), (), real_now, monotonic_now)
    attempts = [
        NewPricingAttempt(
            each.invoice_id, each.position, each.url, each.cap_cents, _request(work, each).body()
        )
        for each in await price_pulls.questions(work.tx, items)
    ]
    numbers = await pricing_attempts.take_numbers(
        work.tx, [(each.invoice_id, each.position) for each in attempts], now=work.now
    )
    calls = [
        PriceCall(
            AttemptKey(each.invoice_id, each.position, numbers[each.invoice_id, each.position]), by_hand, each
        )
        for each in attempts
    ]
    await pricing_attempts.insert(
        work.tx,
        attempts,
        numbers=[call.key.attempt for call in calls],
        by_hand=by_hand,
        created_at=work.now,
        open_until=real_now + LEASE,
    )
    return Reserved(calls, await signing_secrets(work), real_now, monotonic_now)


def _request(work: Work, question: PriceQuestion) -> PriceRequest:
    return PriceRequest(
        mode=CallMode.LIVE,
        pricing_request_id=str(question.item_id),
        product_ref=question.product_ref or str(question.product_id),
        subscription_ref=question.subscription_ref or str(question.subscription_id),
        customer_ref=question.customer_ref,
        period_start=question.period_start,
        period_end=question.period_end,
        cycle=question.cycle,
        currency=work.account.currency,
    )


async def _make(deps: Deps, account: Account, reserved: Reserved) -> None:
    """Make the calls beside each other and record them as they end, those that end together in one transaction."""
    if not reserved.calls:
        return
    give_up_at = reserved.reserved_monotonic + RECORD_WITHIN_SECONDS
    async with deps.merchants.session() as session:
        running = {asyncio.create_task(_ask(deps, session, reserved, call)) for call in reserved.calls}
        try:
            while running:
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if answered := _answered(ended):
                    await _record(deps, account, answered, give_up_at=give_up_at)
        finally:
            for each in running:
                each.cancel()


def _answered(ended: Collection[asyncio.Task[EndedCall | None]]) -> list[EndedCall]:
    """Return what the calls came to, by item; one that broke here is told and counts as lost, the others count."""
    answered: list[EndedCall] = []
    for each in ended:
        broken = each.exception()
        if broken is not None:
            log.error("pricing.call_broken", exc_info=broken)
        elif (call := each.result()) is not None:
            call_counts.price_calls.labels(call.answer.outcome).inc()
            answered.append(call)
    return sorted(answered, key=attrgetter("item"))


async def _ask(deps: Deps, session: MerchantSession, reserved: Reserved, call: PriceCall) -> EndedCall | None:
    """Make a call, unless this caller stood still until its item may be another's; then it counts as lost."""
    real_now = deps.clock()
    if reserved.is_stale(real_now):
        log.warning("pricing.not_asked", invoice_id=str(call.key.invoice_id), reason="the caller stood still")
        return None
    reply: PriceReply = await ask(
        session,
        call.attempt.url,
        body=call.attempt.request_body,
        cap_cents=call.attempt.cap_cents,
        secrets=reserved.secrets,
        timestamp=int(real_now.timestamp()),
    )
    return EndedCall(call.key, call.by_hand, reply)


async def _record(deps: Deps, account: Account, ended: Sequence[EndedCall], *, give_up_at: float) -> None:
    """Record answers, again while the database is away or busy: they were asked for once (spec 4.7 rule 1).

    What cannot be recorded until `give_up_at` (monotonic) is told, and counts as lost when its lease ends. Recording
    twice, after a commit whose outcome got lost, changes nothing.
    """

    async def effect(work: Work) -> None:
        await price_answers.record(work, ended)

    while True:
        try:
            await in_transaction(deps, account, effect)
        except (DatabaseUnavailableError, LockTimeoutError, DeadlockError) as error:
            if time.monotonic() < give_up_at:
                await asyncio.sleep(RECORD_AGAIN_SECONDS)
                continue
            log.error("pricing.not_recorded", items=_items(ended), error=str(error))
        except Exception:  # noqa: BLE001 - one answer's failure must not drop those of the other calls
            log.exception("pricing.not_recorded", items=_items(ended))
            for call in ended if len(ended) > 1 else ():
                await _record(deps, account, [call], give_up_at=give_up_at)
        return


def _items(ended: Sequence[EndedCall]) -> list[str]:
    return [f"{call.key.invoice_id}/{call.key.position}" for call in ended]
