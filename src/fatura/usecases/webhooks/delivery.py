"""Deliver events to the account's webhook in rounds: claim, send, record (D-36, D-39).

`domain.delivery` has the rules for retries, for giving up, and for the endpoint's health.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.audit import ENGINE, Origin
from fatura.domain.audit_actions import WEBHOOK_DISABLE
from fatura.domain.delivery import (
    HTTP_GONE,
    MAX_JITTER_PERMILLE,
    Attempt,
    AttemptResult,
    Delivery,
    EndpointHealth,
    Outcome,
)
from fatura.domain.subscription import ERASED
from fatura.ids import new_id
from fatura.observability import log
from fatura.outbound import webhook
from fatura.outbound.http import DEADLINE_SECONDS, MAX_WAIT_SECONDS, MerchantSession, OutOfResourcesError
from fatura.outbound.webhook import WebhookMessage
from fatura.store import counters, suspension
from fatura.store.webhooks import deliveries, webhooks
from fatura.store.webhooks.deliveries import DueDelivery
from fatura.store.webhooks.webhooks import StoredWebhook
from fatura.usecases.accounts.integration_secret import signing_secrets
from fatura.usecases.database_clock import MAX_PUSH_SKEW
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.operations import call_counts
from fatura.usecases.transaction import DATABASE_FAILURES, Work, in_transaction
from fatura.views.erased import OF_ERASED
from fatura.views.events import EventView, WebhookDisabledDataView, WebhookErrorView
from fatura.views.view import instant
from fatura.views.webhooks import WebhookView

LEASE = timedelta(seconds=60)
"""A worker's lease on an account's endpoint, in real time; every round renews it."""
SEND_WITHIN = timedelta(seconds=15)
"""Maximum time between claiming an event and sending it."""
assert SEND_WITHIN + timedelta(seconds=MAX_WAIT_SECONDS + DEADLINE_SECONDS) + 2 * MAX_PUSH_SKEW < LEASE, (
    "a call must end before another worker's lease begins, even if one host's clock is slow and the other's fast"
)
RELEASE_RETRY_SECONDS = 1
"""Pause between attempts to release a lease while the database fails."""
RUN_SECONDS = 5
"""How long a worker starts new rounds for one account, before it serves other accounts."""
FAN_OUT = 1000
"""Maximum number of events for which delivery rows are inserted in one transaction."""


@dataclass(frozen=True, slots=True)
class Round:
    """The deliveries that one round sends; `send_before` is on the monotonic clock.

    `chosen` is the number of chosen deliveries. It includes those that were put off because they could not be read.
    """

    leased_by: UUID
    url: str
    chosen: int
    due: Sequence[DueDelivery]
    secrets: tuple[str, ...]
    claimed_at: datetime
    send_before: float


Results = Mapping[int, AttemptResult | None]
"""The result of each request, by its event's number; None if an unexpected error stopped the request."""


async def deliver(deps: Deps, account: Account) -> int:
    """Deliver an account's due events for up to RUN_SECONDS (D-39). Put off the events that fail unexpectedly (D-186).

    Return how many were sent or put off.
    """
    leased_by = new_id(deps.clock())
    try:
        return await _deliver(deps, account, leased_by)
    except DATABASE_FAILURES:
        await _release_when_database_answers(deps, account, leased_by)
        raise


async def _deliver(deps: Deps, account: Account, leased_by: UUID) -> int:
    end_at, done = time.monotonic() + RUN_SECONDS, 0
    async with deps.merchants.session(account) as session:
        while claimed := await in_transaction(deps, account, _claim, leased_by):
            results = await _call(deps, session, claimed)
            if results:
                await in_transaction(deps, account, _record, claimed, results)
            done += claimed.chosen - len(claimed.due) + len(results)
            if len(results) < len(claimed.due) or time.monotonic() >= end_at:
                await in_transaction(deps, account, _release, leased_by)
                break
    return done


async def _release_when_database_answers(deps: Deps, account: Account, leased_by: UUID) -> None:
    """Release the lease as soon as the database allows it, because the lease blocks the account's deliveries.

    Events that were sent but not recorded will be sent again; receivers deduplicate them by id (D-39).
    """
    give_up_at = time.monotonic() + LEASE.total_seconds()
    while time.monotonic() < give_up_at:
        with suppress(*DATABASE_FAILURES):
            await in_transaction(deps, account, _release, leased_by)
            return
        await asyncio.sleep(RELEASE_RETRY_SECONDS)


async def _release(work: Work, leased_by: UUID) -> None:
    await webhooks.release(work.tx, leased_by)


async def _claim(work: Work, leased_by: UUID) -> Round | None:
    """Take or renew the endpoint's lease and choose deliveries. If none is due, release the lease and return None.

    Do the same if the endpoint cannot be leased, for example because the webhook is disabled, or if the account is
    suspended (D-242).
    """
    if not await suspension.may_work(work.tx):
        await webhooks.release(work.tx, leased_by)
        return None
    real_now = work.deps.clock()
    stored = await webhooks.lease(
        work.tx, leased_by, now=work.now, real_now=real_now, lease_until=real_now + LEASE
    )
    chosen = () if stored is None else await _choose(work, stored)
    if stored is None:
        await webhooks.release(work.tx, leased_by)
        return None
    if not chosen:
        await webhooks.settle(work.tx, leased_by, push_at=await deliveries.next_due_at(work.tx))
        await counters.note_events_taken(work.tx)
        return None
    return Round(
        leased_by=leased_by,
        url=stored.webhook.url,
        chosen=len(chosen),
        due=await each_alone_if_one_fails(work, chosen, _read, put_off=_put_off),
        secrets=await signing_secrets(work),
        claimed_at=real_now,
        send_before=time.monotonic() + SEND_WITHIN.total_seconds(),
    )


async def _read(work: Work, sequences: Sequence[int]) -> Sequence[DueDelivery]:
    return await deliveries.read(work.tx, sequences)


async def _put_off(work: Work, sequence: int) -> None:
    """Put off a delivery that cannot be read or recorded. Later events of the same invoice wait for the delivery."""
    log.exception("delivery.put_off", sequence=sequence, account_id=str(work.account.account_id))
    await deliveries.put_off(work.tx, sequence, until=work.now + PUT_OFF_BY)


async def _choose(work: Work, stored: StoredWebhook) -> Sequence[int]:
    """Return the numbers of the deliveries to send.

    If fewer are due than one round may send, insert the delivery rows of new events, and choose again.
    """
    await deliveries.unblock_next_events(work.tx)
    due = await _find_due(work, stored.health)
    if len(due) >= stored.health.max_concurrent:
        return due
    added = await deliveries.fan_out(work.tx, after=stored.fanned_out_to, now=work.now, limit=FAN_OUT)
    if added:
        await webhooks.set_fanned_out_to(work.tx, stored.fanned_out_to + added, push_at=work.now)
        due = await _find_due(work, stored.health)
    return due


async def _find_due(work: Work, health: EndpointHealth) -> Sequence[int]:
    if health.failures:
        return await deliveries.due_for_probe(work.tx, now=work.now)
    return await deliveries.due(work.tx, now=work.now, limit=health.max_concurrent)


async def _call(deps: Deps, session: MerchantSession, claimed: Round) -> Results:
    """Send a round's events concurrently, outside any transaction. The results lack the events that were not sent."""
    ended = await asyncio.gather(
        *(_send(deps, session, claimed, due) for due in claimed.due), return_exceptions=True
    )
    results: dict[int, AttemptResult | None] = {}
    for due, result in zip(claimed.due, ended, strict=True):
        if isinstance(result, BaseException):  # the others were sent, and their results must be recorded
            log.error("delivery.put_off", event_id=str(due.event_id), exc_info=result)
            results[due.sequence] = None
        elif result is not None:
            call_counts.deliveries.labels(result.outcome).inc()
            results[due.sequence] = result
    return results


async def _send(
    deps: Deps, session: MerchantSession, claimed: Round, due: DueDelivery
) -> AttemptResult | None:
    """Send one event. Return None if it was not sent, because the worker was suspended or has no free sockets."""
    real_now = deps.clock()
    # both clocks are read, because either may stop while the machine is suspended
    if real_now - claimed.claimed_at > SEND_WITHIN or time.monotonic() > claimed.send_before:
        log.warning(
            "delivery.not_sent", event_id=str(due.event_id), reason="the worker froze after its claim"
        )
        return None
    event = EventView.of(due.event_id, due.sequence, type_=due.type, created_at=due.created_at, data=due.data)
    message = WebhookMessage(str(due.event_id), due.type, due.attempts + 1, event.json())
    try:
        return await webhook.post(
            session, message, url=claimed.url, secrets=claimed.secrets, real_now=real_now
        )
    except OutOfResourcesError:  # logged by the dialer
        return None


async def _record(work: Work, claimed: Round, results: Results) -> None:
    """Record the results of a round.

    If the lease was lost, record only successes, because another worker may have retried the failed deliveries.
    """
    stored = await webhooks.lock(work.tx)
    answered = {number: each for number, each in results.items() if each is not None}
    if stored is None or stored.leased_by != claimed.leased_by:
        log.warning("delivery.lease_lost", results=len(results))
        successes = {number: each for number, each in answered.items() if each.outcome is Outcome.DELIVERED}
        await _record_attempts(work, claimed, successes, health=None)
        if successes:
            await webhooks.count_pushes(work.tx, delivered=len(successes), failed=0)
            await webhooks.look_at(work.tx, work.now)
        return
    for sequence in results.keys() - answered.keys():
        await deliveries.put_off(work.tx, sequence, until=work.now + PUT_OFF_BY)
    if answered:
        await _record_answers(work, claimed, stored, answered)


async def _record_answers(
    work: Work, claimed: Round, stored: StoredWebhook, answered: Mapping[int, AttemptResult]
) -> None:
    results = list(answered.values())
    health = stored.health.after_round(results, now=work.now, real_now=work.deps.clock())
    await _record_attempts(work, claimed, answered, health=health)
    if outage_since := health.recovered_from(stored.health, now=work.now):
        await deliveries.reschedule_after_outage(work.tx, failed_since=outage_since, now=work.now)
    await _store_health(work, stored, health, results=results)
    delivered = sum(result.outcome is Outcome.DELIVERED for result in results)
    await webhooks.count_pushes(work.tx, delivered=delivered, failed=len(results) - delivered)


async def _store_health(
    work: Work, stored: StoredWebhook, health: EndpointHealth, *, results: Sequence[AttemptResult]
) -> None:
    """Store the endpoint's health; disable the webhook after a 410 or five days of failures (D-39, D-65)."""
    if not health.should_disable(results, now=work.now, real_now=work.deps.clock()):
        await webhooks.set_health(work.tx, health, disabled_at=None, push_at=work.now)
        return
    await webhooks.set_health(work.tx, health, disabled_at=work.now, push_at=work.now)
    error = _error(health, results)
    log.warning("webhook.disabled", code=error.code, account_id=str(work.account.account_id))
    disabled = replace(stored.webhook, disabled_at=work.now)
    view = WebhookView.of(disabled, shows_path=False)
    work.emit("webhook.disabled", WebhookDisabledDataView(webhook=view, error=error))
    work.audit_for(
        Origin(ENGINE),
        WEBHOOK_DISABLE,
        resource_id=work.account.account_id,
        before=WebhookView.of(stored.webhook, shows_path=False),
        after=view,
    )
    await counters.note_webhook(work.tx)


def _error(health: EndpointHealth, results: Sequence[AttemptResult]) -> WebhookErrorView:
    gone = next((result for result in results if result.response_status == HTTP_GONE), None)
    if gone is not None:
        code, detail, last = "gone", "The endpoint answered 410 Gone.", gone
    else:
        code, last = "failed_for_too_long", results[-1]
        detail = f"Every delivery has failed since {instant(health.failing_since)}."
    return WebhookErrorView(
        code=code,
        detail=f"{detail} Register it again with PUT /v1/integration/webhook to resume deliveries.",
        last_error=last.error,
        response_status=last.response_status,
    )


async def _record_attempts(
    work: Work, claimed: Round, results: Mapping[int, AttemptResult], *, health: EndpointHealth | None
) -> None:
    """Store the attempts and update their deliveries; `health` may be None only if all results are successes."""
    record = partial(_record_some, claimed=claimed, results=results, health=health)
    await each_alone_if_one_fails(work, sorted(results), record, put_off=_put_off)


async def _record_some(
    work: Work,
    sequences: Sequence[int],
    *,
    claimed: Round,
    results: Mapping[int, AttemptResult],
    health: EndpointHealth | None,
) -> Sequence[int]:
    due_at = {due.sequence: due.next_attempt_at for due in claimed.due}
    changed: list[Delivery] = []
    attempts: list[Attempt] = []
    locked = await deliveries.lock(work.tx, sequences)
    of_erased = await _of_erased(work, results, sequences)
    for delivery in locked:
        result = results[delivery.sequence]
        if delivery.sequence in of_erased:
            result = replace(result, response_body=ERASED)
        if result.outcome is Outcome.DELIVERED:
            after = delivery.delivered(now=work.now)
        else:
            assert health is not None, "after a lost lease only successes are recorded"
            after = delivery.failed(
                result,
                now=work.now,
                health=health,
                claimed_for=due_at[delivery.sequence],
                jitter_permille=random.randint(0, MAX_JITTER_PERMILLE),  # noqa: S311 - spreads load
            )
        changed.append(after)
        attempts.append(Attempt(delivery.sequence, after.attempts, claimed.url, work.now, result))
    await deliveries.store(work.tx, changed)
    await deliveries.log_attempts(work.tx, attempts, stored_at=work.deps.clock())
    return sequences


async def _of_erased(work: Work, results: Mapping[int, AttemptResult], sequences: Sequence[int]) -> set[int]:
    """Return the numbers of those events of erased customers to which the endpoint answered with a body.

    The body may repeat the customer's data (D-229).
    """
    answered = [number for number in sequences if results[number].response_body is not None]
    return await deliveries.containing(work.tx, answered, text=OF_ERASED) if answered else set()
