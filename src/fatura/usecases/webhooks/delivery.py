"""Push events in rounds of three beats: reserve, call, record (D-39). What answers mean: `domain.delivery`."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.delivery import (
    MAX_JITTER_PERMILLE,
    Attempt,
    AttemptResult,
    Delivery,
    EndpointHealth,
    Outcome,
)
from fatura.domain.events import element
from fatura.ids import new_id
from fatura.observability import log
from fatura.outbound import webhook
from fatura.outbound.http import DEADLINE_SECONDS, MerchantSession, OutOfResourcesError
from fatura.outbound.webhook import Push
from fatura.store.webhooks import deliveries, webhooks
from fatura.store.webhooks.deliveries import DueDelivery
from fatura.store.webhooks.webhooks import StoredWebhook
from fatura.usecases.accounts.integration_secret import signing_secrets
from fatura.usecases.database_errors import DatabaseUnavailableError
from fatura.usecases.deps import Deps
from fatura.usecases.operations import call_counts
from fatura.usecases.operations.health import MAX_PUSH_SKEW
from fatura.usecases.transaction import Work, in_transaction
from fatura.usecases.webhooks import endpoint_health

LEASE = timedelta(seconds=60)
"""How long a worker owns an account's endpoint, in real time; every round renews it."""
SEND_WITHIN_SECONDS = 15
"""A worker that was frozen sends nothing later than this after reserving."""
assert timedelta(seconds=SEND_WITHIN_SECONDS + DEADLINE_SECONDS) + 2 * MAX_PUSH_SKEW < LEASE, (
    "nobody sends while a call of the last one may be open, though one host's clock is slow and the other's fast"
)
GIVE_BACK_EVERY_SECONDS = 1
"""How often the database is asked to take a lease back."""
RUN_SECONDS = 5
"""How long one run goes on from round to round before another account may have its turn."""
FAN_OUT = 1000
"""Most events taken up at once, when nothing that was taken up before can be sent."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round sends, and what it is signed with; `reserved_at` and `send_before` stop a worker that froze."""

    leased_by: UUID
    url: str
    due: Sequence[DueDelivery]
    secrets: tuple[str, ...]
    reserved_at: datetime
    send_before: float


@dataclass(frozen=True, slots=True)
class Tried:
    """One event of a round, and what came of it."""

    due: DueDelivery
    answer: AttemptResult


async def deliver(deps: Deps, account: Account) -> int:
    """Push an account's due events, round after round for some seconds; return how many were tried (D-39)."""
    leased_by = new_id(deps.clock())
    try:
        return await _deliver(deps, account, leased_by)
    except DatabaseUnavailableError:
        await _give_back(deps, account, leased_by)
        raise


async def _deliver(deps: Deps, account: Account, leased_by: UUID) -> int:
    go_on_until, count = time.monotonic() + RUN_SECONDS, 0

    async def reserve(work: Work) -> Round | None:
        return await _reserve(work, leased_by, renewed=count > 0)

    async def release(work: Work) -> None:
        await webhooks.release(work.tx, leased_by)

    async with deps.merchants.session() as session:
        while planned := await in_transaction(deps, account, reserve):
            tried = await _call(deps, session, planned)
            await _record(deps, account, planned, tried)
            count += len(tried)
            if len(tried) < len(planned.due) or time.monotonic() >= go_on_until:
                await in_transaction(deps, account, release)
                break
    return count


async def _give_back(deps: Deps, account: Account, leased_by: UUID) -> None:
    """Give the endpoint back as soon as the database returns: the whole account waits for its lease.

    What was sent and not recorded is sent again; receivers know repeats by their ids (D-39).
    """

    async def release(work: Work) -> None:
        await webhooks.release(work.tx, leased_by)

    give_up_at = time.monotonic() + LEASE.total_seconds()
    while time.monotonic() < give_up_at:
        with suppress(DatabaseUnavailableError):
            await in_transaction(deps, account, release)
            return
        await asyncio.sleep(GIVE_BACK_EVERY_SECONDS)


async def _reserve(work: Work, leased_by: UUID, *, renewed: bool) -> Round | None:
    """Lease the endpoint and choose what to send; give the lease back when there is nothing."""
    real_now = work.deps.clock()
    leased = await webhooks.lease(
        work.tx, leased_by, now=work.now, real_now=real_now, lease_until=real_now + LEASE
    )
    due = () if leased is None else await _choose(work, leased)
    if leased is None or not due:
        if leased is not None or renewed:
            await webhooks.release(work.tx, leased_by)
        return None
    return Round(
        leased_by=leased_by,
        url=leased.webhook.url,
        due=due,
        secrets=await signing_secrets(work),
        reserved_at=real_now,
        send_before=time.monotonic() + SEND_WITHIN_SECONDS,
    )


async def _choose(work: Work, leased: StoredWebhook) -> Sequence[DueDelivery]:
    """Return what to send now; when that is less than could be sent, take up what the stream holds beyond."""
    await deliveries.unblock_next_events(work.tx)
    due = await _due(work, leased.health)
    if len(due) >= leased.health.at_once:
        return due
    taken_up = await deliveries.fan_out(work.tx, after=leased.fanned_out_to, now=work.now, limit=FAN_OUT)
    if not taken_up:
        return due
    await webhooks.set_fanned_out_to(work.tx, leased.fanned_out_to + taken_up)
    return await _due(work, leased.health)


async def _due(work: Work, health: EndpointHealth) -> Sequence[DueDelivery]:
    if health.failures:
        return await deliveries.due_for_probe(work.tx, now=work.now)
    return await deliveries.due(work.tx, now=work.now, limit=health.at_once)


async def _call(deps: Deps, session: MerchantSession, planned: Round) -> Sequence[Tried]:
    """Send a round's events beside each other, with no transaction open; return those that were sent."""
    answers = await asyncio.gather(*(_send(deps, session, planned, due) for due in planned.due))
    tried = [
        Tried(due, answer) for due, answer in zip(planned.due, answers, strict=True) if answer is not None
    ]
    for each in tried:
        call_counts.deliveries.labels(each.answer.outcome).inc()
    return tried


async def _send(
    deps: Deps, session: MerchantSession, planned: Round, due: DueDelivery
) -> AttemptResult | None:
    real_now = deps.clock()
    stood_still = real_now - planned.reserved_at > timedelta(seconds=SEND_WITHIN_SECONDS)
    if stood_still or time.monotonic() > planned.send_before:  # either clock may stop with the machine
        log.warning("push.not_sent", event_id=str(due.event_id), reason="the worker stood still")
        return None
    body = element(due.event_id, due.sequence, type_=due.type, created_at=due.created_at, data=due.data)
    each = Push(planned.url, due.event_id, due.type, due.attempts + 1, body.encode())
    try:
        return await webhook.push(session, each, secrets=planned.secrets, real_now=real_now)
    except OutOfResourcesError as error:
        log.error("push.not_sent", event_id=str(due.event_id), reason=str(error))
        return None


async def _record(deps: Deps, account: Account, planned: Round, tried: Sequence[Tried]) -> None:
    async def record(work: Work) -> None:
        stored = await webhooks.lock(work.tx)
        if stored is not None and stored.leased_by == planned.leased_by:
            await _record_round(work, stored, planned, tried=tried)
        else:
            log.warning("push.stale_answers", count=len(tried))
            late = [each for each in tried if each.answer.outcome is Outcome.DELIVERED]
            await _record_answers(work, planned, late, health=None)

    if tried:
        await in_transaction(deps, account, record)


async def _record_round(work: Work, stored: StoredWebhook, planned: Round, *, tried: Sequence[Tried]) -> None:
    """Record what this worker, which still holds the lease, has learnt of each event and of the endpoint."""
    answers = [each.answer for each in tried]
    health = stored.health.after_round(answers, now=work.now)
    await _record_answers(work, planned, tried, health=health)
    if outage_since := health.recovered_from(stored.health, now=work.now):
        await deliveries.reschedule_after_outage(work.tx, failed_since=outage_since, now=work.now)
    await endpoint_health.store(work, stored, health, answers=answers)


async def _record_answers(
    work: Work, planned: Round, tried: Sequence[Tried], *, health: EndpointHealth | None
) -> None:
    """Record attempts, and where each event stands now; without `health` they are successes that came late."""
    by_sequence = {each.due.sequence: each for each in tried}
    changed: list[Delivery] = []
    logged: list[tuple[int, Attempt]] = []
    for known in await deliveries.lock(work.tx, list(by_sequence)):
        each = by_sequence[known.sequence]
        if each.answer.outcome is Outcome.DELIVERED:
            after = known.delivered(now=work.now)
        else:
            assert health is not None, "late failures are dropped"
            after = known.failed(
                each.answer,
                now=work.now,
                health=health,
                reserved_for=each.due.next_attempt_at,
                jitter_permille=random.randint(0, MAX_JITTER_PERMILLE),  # noqa: S311 - it spreads load, and guards nothing
            )
        changed.append(after)
        logged.append((known.sequence, _logged(work, planned, each, number=after.attempts)))
    await deliveries.store(work.tx, changed)
    await deliveries.log_attempts(work.tx, logged)


def _logged(work: Work, planned: Round, each: Tried, *, number: int) -> Attempt:
    answer = each.answer
    return Attempt(
        attempt=number,
        url=planned.url,
        outcome=answer.outcome,
        response_status=answer.response_status,
        latency_ms=answer.latency_ms,
        error=answer.error,
        response_body=answer.response_body,
        created_at=work.now,
    )
