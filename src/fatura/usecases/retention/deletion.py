"""Delete old rows in small batches: one short transaction each, with pauses between them (D-246, D-247)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime

from fatura.domain.account import Account
from fatura.domain.retention import Kind, cut, next_kept_from
from fatura.store.charging import charge_calls
from fatura.store.connections import gateway_webhooks
from fatura.store.retention import old_rows, progress
from fatura.store.retention.progress import Progress
from fatura.store.webhooks import webhooks
from fatura.usecases import idempotency
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction

BATCH = 500
"""Maximum number of events, audit entries or calls about charges that one transaction deletes.

Also the maximum number of items whose price calls it deletes.
"""
ATTEMPTS = 2000
"""Maximum number of attempts to deliver events that one transaction deletes."""
WEBHOOKS = 2000
"""Maximum number of gateways' webhooks that one transaction deletes."""
EXPIRED_KEYS = 1000
"""Maximum number of expired Idempotency-Keys that one transaction deletes."""
PAUSE_FACTOR = 4
"""After a batch, the lane pauses for this many times the batch's duration, so that it leaves the disk to other work."""
MAX_PAUSE_SECONDS = 5


async def run(deps: Deps, account: Account) -> int:
    """Delete one batch of an account's old rows, then pause. Return how many rows were deleted."""
    began = time.monotonic()
    done = await in_transaction(deps, account, _delete)
    if done:
        pause = min(PAUSE_FACTOR * (time.monotonic() - began), MAX_PAUSE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(deps.stopping.wait(), pause)
    return done


async def _delete(work: Work) -> int:
    """Delete expired Idempotency-Keys and, if they are fewer than EXPIRED_KEYS, a batch of old rows of one kind."""
    keys = await idempotency.delete_expired(work, limit=EXPIRED_KEYS)
    if keys == EXPIRED_KEYS:
        return keys
    real_now = work.deps.clock()
    stored_to = {kind: real_now - days for kind, days in work.deps.settings.retention.items()}
    while claimed := await progress.claim(work.tx, stored_to):
        await work.tx.allow_retention()
        if done := await _DELETE[claimed.kind](work, claimed, stored_to[claimed.kind]):
            return keys + done
    return keys


async def _delete_events(work: Work, claimed: Progress, stored_to: datetime) -> int:
    """Delete a batch of old events with their deliveries and attempts. Return how many rows were deleted.

    If the events have at least ATTEMPTS attempts, delete only ATTEMPTS attempts, and no event. The lock of the webhook
    keeps workers and `redeliver` from using these events at the same time.
    """
    # `_delete_attempts` runs with this row locked, and then locks the webhook; the same order avoids deadlocks
    await progress.lock(work.tx, Kind.DELIVERIES)
    await webhooks.lock(work.tx)
    after = claimed.deleted_to
    rows = await old_rows.oldest_events(work.tx, after=after, limit=BATCH)
    found = cut(rows, stored_to=stored_to, limit=BATCH, real_now=work.deps.clock())
    if not found.old:
        await progress.update(work.tx, Kind.EVENTS, kept_from=found.kept_from)
        return 0
    to = found.old[-1].sequence
    attempts = await old_rows.delete_attempts(work.tx, after=after, to=to, limit=ATTEMPTS)
    await progress.note_deleted(work.tx, Kind.DELIVERIES, deleted_to=max(attempts, default=0))
    if len(attempts) == ATTEMPTS:
        return ATTEMPTS
    await old_rows.delete_events(work.tx, after=after, to=to)
    await old_rows.skip_in_webhook(work.tx, to=to)
    await progress.update(
        work.tx,
        Kind.EVENTS,
        kept_from=found.kept_from,
        deleted_to=to,
        deleted_until=max(event.created_at for event in found.old),
    )
    return len(found.old)


async def _delete_attempts(work: Work, _claimed: Progress, stored_to: datetime) -> int:
    """Delete old attempts to deliver events; the events and the results of their deliveries stay.

    Delete the oldest attempts first, not the attempts of the oldest events. An old event can have recent attempts,
    because a merchant can ask to send it again.
    """
    await webhooks.lock(work.tx)
    deleted = await old_rows.delete_old_attempts(work.tx, stored_to=stored_to, limit=ATTEMPTS)
    first = await old_rows.first_stored_at(work.tx)
    await progress.update(
        work.tx,
        Kind.DELIVERIES,
        kept_from=next_kept_from(first, stored_to=stored_to, real_now=work.deps.clock()),
        deleted_to=max(deleted, default=0),
    )
    return len(deleted)


async def _delete_price_calls(work: Work, _claimed: Progress, stored_to: datetime) -> int:
    done = await old_rows.delete_price_calls(work.tx, closed_to=stored_to, limit=BATCH)
    first = await old_rows.first_closed_at(work.tx)
    kept_from = next_kept_from(first, stored_to=stored_to, real_now=work.deps.clock())
    await progress.update(work.tx, Kind.PRICE_CALLS, kept_from=kept_from)
    return done


async def _delete_entries(work: Work, claimed: Progress, stored_to: datetime) -> int:
    after = claimed.deleted_to
    rows = await old_rows.oldest_entries(work.tx, after=after, limit=BATCH)
    found = cut(rows, stored_to=stored_to, limit=BATCH, real_now=work.deps.clock())
    to = found.old[-1].sequence if found.old else after
    await old_rows.delete_entries(work.tx, after=after, to=to)
    await progress.update(work.tx, Kind.AUDIT, kept_from=found.kept_from, deleted_to=to)
    return len(found.old)


async def _delete_webhooks(work: Work, _claimed: Progress, stored_to: datetime) -> int:
    done = await gateway_webhooks.delete_old(work.tx, stored_to=stored_to, limit=WEBHOOKS)
    first = await gateway_webhooks.first_received_at(work.tx)
    kept_from = next_kept_from(first, stored_to=stored_to, real_now=work.deps.clock())
    await progress.update(work.tx, Kind.GATEWAY_WEBHOOKS, kept_from=kept_from)
    return done


async def _delete_calls(work: Work, _claimed: Progress, stored_to: datetime) -> int:
    done = await charge_calls.delete_old(work.tx, stored_to=stored_to, limit=BATCH)
    first = await charge_calls.first_stored_at(work.tx)
    kept_from = next_kept_from(first, stored_to=stored_to, real_now=work.deps.clock())
    await progress.update(work.tx, Kind.CHARGE_CALLS, kept_from=kept_from)
    return done


_DELETE: Mapping[Kind, Callable[[Work, Progress, datetime], Awaitable[int]]] = {
    Kind.EVENTS: _delete_events,
    Kind.DELIVERIES: _delete_attempts,
    Kind.PRICE_CALLS: _delete_price_calls,
    Kind.AUDIT: _delete_entries,
    Kind.GATEWAY_WEBHOOKS: _delete_webhooks,
    Kind.CHARGE_CALLS: _delete_calls,
}
