"""Register and remove the account's webhook; show and repeat deliveries (D-39)."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.delivery import NEW_ENDPOINT, Delivery, DeliveryStatus
from fatura.domain.errors import NOT_FOUND, WEBHOOK_DISABLED, EngineError, require
from fatura.store import counters
from fatura.store.webhooks import deliveries, events, webhooks
from fatura.store.webhooks.events import StoredEvent
from fatura.store.webhooks.webhooks import StoredWebhook
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, execute_once
from fatura.usecases.transaction import LaneName, Work, in_snapshot
from fatura.views.view import View, instant
from fatura.views.webhooks import AdvancedWebhookView, DeliveriesView, DeliveryAttemptView, WebhookView

MAX_SHOWN_ATTEMPTS = 100
REGISTER = "register one with PUT /v1/integration/webhook"


async def register(work: Work, url: str) -> WebhookView:
    """Register the webhook, or change its URL and enable it; open deliveries become due now (D-39).

    A new webhook gets only events emitted from now on. A disabled webhook continues with its first undelivered event.
    Nothing changes if the webhook has this URL, is enabled and works.
    """
    before = None
    last = await counters.last_sequence(work.tx)
    while not await webhooks.insert(work.tx, url, created_at=work.now, fanned_out_to=last):
        if stored := await webhooks.lock(work.tx):
            before = WebhookView.of(stored.webhook, shows_path=True)
            await _resume(work, stored, url)
            break
        # the webhook was removed after `insert` found it, so insert it again
        last = await counters.last_sequence(work.tx)
    await counters.note_webhook(work.tx)
    view = await read(work, shows_path=True)
    work.audit(work.account.account_id, before=before, after=view)
    return view


async def _resume(work: Work, stored: StoredWebhook, url: str) -> None:
    health, webhook = stored.health, stored.webhook
    if webhook.url == url and webhook.disabled_at is None and health.next_attempt_at is None:
        return
    await work.refresh()
    if webhook.url != url:
        await webhooks.set_url(work.tx, url)
    if webhook.disabled_at is not None and health.failing_since is not None:
        await deliveries.reopen_given_up(work.tx, since=health.failing_since, now=work.now)
    await deliveries.restart_all(work.tx, now=work.now)
    fresh = replace(NEW_ENDPOINT, last_delivered_at=health.last_delivered_at)
    if webhook.url == url and webhook.disabled_at is None:
        # keep the time of the first failure, because DISABLE_AFTER counts from it
        known = health.without_stale_failures(now=work.now)
        fresh = replace(
            fresh,
            failures=known.failures,
            failing_since=known.failing_since,
            real_failing_since=known.real_failing_since,
        )
    await webhooks.set_health(work.tx, fresh, disabled_at=None, push_at=work.now)
    work.notify(LaneName.PUSH, LaneName.PROBE)


async def begin_advance(work: Work) -> None:
    """Count the pushes from now on, because an advance of the test clock begins (D-65)."""
    await webhooks.restart_count(work.tx)


async def end_advance(work: Work) -> None:
    """If the endpoint is down, make its open deliveries due now, with new retry schedules (D-250).

    The advance may have used up most of a retry schedule while the receiver was down for a few seconds of real time.
    """
    stored = await webhooks.lock(work.tx)
    if stored is None or stored.webhook.disabled_at is not None or not stored.health.failures:
        return
    await deliveries.restart_all(work.tx, now=work.now)
    health = replace(stored.health, next_attempt_at=None)
    await webhooks.set_health(work.tx, health, disabled_at=None, push_at=work.now)
    work.notify(LaneName.PUSH, LaneName.PROBE)


async def read_advance(work: Work) -> AdvancedWebhookView | None:
    """Return how many pushes succeeded and failed since the newest advance of the test clock began (D-65).

    Return None if the account has no webhook.
    """
    stored = await webhooks.find(work.tx)
    if stored is None:
        return None
    enabled = stored.webhook.disabled_at is None
    return AdvancedWebhookView(enabled=enabled, delivered=stored.delivered, failed=stored.failed)


async def read(work: Work, *, shows_path: bool) -> WebhookView:
    """Return the webhook, with the path of its URL only if `shows_path` is true (D-64).

    Raises EngineError: `engine.not_found`.
    """
    stored = await webhooks.find(work.tx)
    if stored is None:
        raise _no_webhook()
    return WebhookView.of(stored.webhook, shows_path=shows_path)


async def remove(work: Work) -> None:
    """Remove the webhook and give up its open deliveries. Raises EngineError: `engine.not_found`."""
    stored = await webhooks.lock(work.tx)
    if stored is None:
        raise _no_webhook()
    work.audit(work.account.account_id, before=WebhookView.of(stored.webhook, shows_path=True))
    await deliveries.give_up_all(work.tx, given_up_at=work.now)
    await webhooks.delete(work.tx)
    await counters.note_webhook(work.tx)


def _no_webhook() -> EngineError:
    return EngineError(NOT_FOUND, f"The account has no webhook; {REGISTER}.")


async def read_deliveries(work: Work, event_id: UUID, *, shows_path: bool) -> DeliveriesView:
    """Return the status and the attempts of an event's delivery. `shows_path` has the same meaning as for `read`.

    Raises EngineError: `engine.not_found`.
    """
    event = require(await events.find(work.tx, event_id), "event", id_=event_id)
    return await _deliveries(work, event, await webhooks.find(work.tx), shows_path=shows_path)


@dataclass(frozen=True, slots=True)
class Redelivery:
    """The event's delivery after a request to redeliver it."""

    view: DeliveriesView
    is_replayed: bool


class _Redelivered(View):
    """The event's id, stored for an Idempotency-Key. The stored answer has no copy of the receivers' answers."""

    id: str


async def redeliver(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    event_id: UUID,
    *,
    shows_path: bool,
    draft: AuditDraft | None,
) -> Redelivery:
    """Let workers deliver an event again, and return the current state of its delivery.

    A repeated request delivers nothing, and also returns the current state. The answer is not stored: it would keep
    what receivers answered, even after the customer was erased (D-226).
    Raises EngineError: `engine.not_found`, `engine.webhook_disabled`, and the errors of `execute_once`.
    """
    deliver = partial(_redeliver, event_id=event_id)
    stored = await execute_once(deps, account, request, deliver, status=202, draft=draft)
    view = await in_snapshot(deps, account, read_deliveries, event_id, shows_path=shows_path)
    return Redelivery(view, stored.replayed)


async def _redeliver(work: Work, *, event_id: UUID) -> _Redelivered:
    """Make an event due now, even if it was delivered, given up, or emitted while no webhook was registered (D-39).

    An open delivery still waits for the earlier events of its invoice; a closed delivery is sent out of order. The
    delivery's retry schedule starts again.
    Raises EngineError: `engine.not_found`, `engine.webhook_disabled`.
    """
    stored = await webhooks.lock(work.tx)
    event = require(await events.lock(work.tx, event_id), "event", id_=event_id)
    if stored is None or stored.webhook.disabled_at is not None:
        raise EngineError(
            WEBHOOK_DISABLED,
            f"The account has no enabled webhook; {REGISTER}, which also enables a disabled one.",
        )
    await work.refresh()
    # must run before `reopen`, because `unblock_next_events` does not find a delivery that is open again
    await deliveries.unblock_next_events(work.tx)
    if event.sequence <= stored.fanned_out_to:
        known = await deliveries.find(work.tx, event.sequence)
        if known is not None and known.status is DeliveryStatus.PENDING:
            await deliveries.make_due(work.tx, event.sequence, now=work.now)
        else:
            await deliveries.reopen(work.tx, event.sequence, now=work.now)
    health = replace(stored.health.without_stale_failures(now=work.now), next_attempt_at=None)
    await webhooks.set_health(work.tx, health, disabled_at=None, push_at=work.now)
    work.notify(LaneName.PUSH, LaneName.PROBE)
    work.audit(event_id, before={}, after={})
    return _Redelivered(id=str(event_id))


async def _deliveries(
    work: Work, event: StoredEvent, stored: StoredWebhook | None, *, shows_path: bool
) -> DeliveriesView:
    """Return an event's delivery in the API's format.

    An event that has no delivery row is `pending` if a row will still be inserted for it, else `not_sent`.
    """
    known = await deliveries.find(work.tx, event.sequence)
    if known is not None:
        status = known.status
    else:
        is_pending = stored is not None and event.sequence > stored.fanned_out_to
        status = DeliveryStatus.PENDING if is_pending else DeliveryStatus.NOT_SENT
    attempts = await deliveries.attempts_of(work.tx, event.sequence, limit=MAX_SHOWN_ATTEMPTS)
    return DeliveriesView(
        status=status,
        next_attempt_at=instant(_due_at(known, stored)),
        data=[DeliveryAttemptView.of(attempt, shows_path=shows_path) for attempt in attempts],
    )


def _due_at(known: Delivery | None, stored: StoredWebhook | None) -> datetime | None:
    """Return the earliest time of the next attempt; None if the delivery is closed or the webhook is disabled."""
    next_at = None if known is None else known.next_attempt_at
    if next_at is None or stored is None or stored.webhook.disabled_at is not None:
        return None
    return max(next_at, stored.health.next_attempt_at or next_at)
