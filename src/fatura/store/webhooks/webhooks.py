"""The account's webhook: its URL, its endpoint's health, and the delivering worker's lease (D-39)."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.delivery import EndpointHealth, Webhook
from fatura.store import leases
from fatura.store.db import Row, Tx, record


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """A webhook with its health and lease. Events with numbers above `fanned_out_to` have no delivery row yet.

    `delivered` and `failed` count pushes since the newest advance of the test clock began.
    """

    webhook: Webhook
    health: EndpointHealth
    fanned_out_to: int
    leased_by: UUID | None
    delivered: int
    failed: int


async def insert(tx: Tx, url: str, *, created_at: datetime, fanned_out_to: int) -> bool:
    """Register a webhook for events after number `fanned_out_to`; return False if the account already has a webhook."""
    inserted = await tx.execute(
        """
        INSERT INTO webhook (account_id, url, created_at, fanned_out_to) VALUES ($1, $2, $3, $4)
        ON CONFLICT (account_id) DO NOTHING
        """,
        url,
        created_at,
        fanned_out_to,
    )
    return inserted == 1


async def find(tx: Tx) -> StoredWebhook | None:
    row = await tx.fetchrow(
        """
        SELECT w.url, w.created_at, w.disabled_at, w.fanned_out_to, w.at_once AS max_concurrent, w.failures,
            w.failing_since, w.real_failing_since, w.last_delivered_at, w.next_attempt_at, w.leased_by,
            w.delivered, w.failed
        FROM webhook w WHERE w.account_id = $1
        """
    )
    return None if row is None else _stored(row)


async def lock(tx: Tx) -> StoredWebhook | None:
    """Lock the account's webhook. Every transaction that changes a delivery must take this lock first.

    Return None if there is no webhook, or if the webhook was removed during the wait for the lock.
    """
    # If nothing was locked, do not call `find`: it could return a webhook that was registered during the wait.
    locked = await tx.execute("SELECT FROM webhook w WHERE w.account_id = $1 FOR NO KEY UPDATE")
    return await find(tx) if locked else None


async def lease(
    tx: Tx, leased_by: UUID, *, now: datetime, real_now: datetime, lease_until: datetime
) -> StoredWebhook | None:
    """Take or renew the lease of an enabled webhook, and return the webhook.

    Return None if no webhook is enabled, `next_attempt_at` is in the future, or another worker has a valid lease.
    """
    row = await tx.fetchrow(
        """
        UPDATE webhook w SET leased_by = $2, lease_until = $5
        WHERE w.account_id = $1 AND w.disabled_at IS NULL
            AND (w.next_attempt_at IS NULL OR w.next_attempt_at <= $3)
            AND (w.leased_by = $2 OR w.lease_until IS NULL OR w.lease_until <= $4 OR w.lease_until > $6)
        RETURNING w.url, w.created_at, w.disabled_at, w.fanned_out_to, w.at_once AS max_concurrent, w.failures,
            w.failing_since, w.real_failing_since, w.last_delivered_at, w.next_attempt_at, w.leased_by,
            w.delivered, w.failed
        """,
        leased_by,
        now,
        real_now,
        lease_until,
        leases.horizon(real_now),
    )
    return None if row is None else _stored(row)


async def release(tx: Tx, leased_by: UUID) -> None:
    """Release the lease if this worker still has it."""
    await tx.execute(
        """
        UPDATE webhook w SET leased_by = NULL, lease_until = NULL WHERE w.account_id = $1 AND w.leased_by = $2
        """,
        leased_by,
    )


async def settle(tx: Tx, leased_by: UUID, *, push_at: datetime | None) -> None:
    """If this worker still has the lease, release it and store when the next delivery is due."""
    await tx.execute(
        """
        UPDATE webhook w SET leased_by = NULL, lease_until = NULL, push_at = $3
        WHERE w.account_id = $1 AND w.leased_by = $2
        """,
        leased_by,
        push_at,
    )


async def set_fanned_out_to(tx: Tx, sequence: int, *, push_at: datetime) -> None:
    """Store that events up to number `sequence` have deliveries. Let workers poll for these from `push_at` on."""
    await tx.execute(
        "UPDATE webhook w SET fanned_out_to = $2, push_at = least(w.push_at, $3) WHERE w.account_id = $1",
        sequence,
        push_at,
    )


async def look_at(tx: Tx, push_at: datetime) -> None:
    """Let workers poll for due deliveries from `push_at` on."""
    await tx.execute("UPDATE webhook w SET push_at = least(w.push_at, $2) WHERE w.account_id = $1", push_at)


async def count_pushes(tx: Tx, *, delivered: int, failed: int) -> None:
    await tx.execute(
        """
        UPDATE webhook w SET delivered = w.delivered + $2::bigint, failed = w.failed + $3::bigint
        WHERE w.account_id = $1
        """,
        delivered,
        failed,
    )


async def restart_count(tx: Tx) -> None:
    await tx.execute("UPDATE webhook w SET delivered = 0, failed = 0 WHERE w.account_id = $1")


async def set_health(
    tx: Tx, health: EndpointHealth, *, disabled_at: datetime | None, push_at: datetime
) -> None:
    """Store the endpoint's health, and let workers poll for due deliveries from `push_at` on."""
    await tx.execute(
        """
        UPDATE webhook w SET at_once = $2, failures = $3, failing_since = $4, real_failing_since = $5,
            last_delivered_at = $6, next_attempt_at = $7, disabled_at = $8, push_at = least(w.push_at, $9)
        WHERE w.account_id = $1
        """,
        health.max_concurrent,
        health.failures,
        health.failing_since,
        health.real_failing_since,
        health.last_delivered_at,
        health.next_attempt_at,
        disabled_at,
        push_at,
    )


async def set_url(tx: Tx, url: str) -> None:
    """Change the URL and end the lease of a worker that delivers to the old URL."""
    await tx.execute(
        "UPDATE webhook w SET url = $2, leased_by = NULL, lease_until = NULL WHERE w.account_id = $1", url
    )


async def delete(tx: Tx) -> None:
    await tx.execute("DELETE FROM webhook w WHERE w.account_id = $1")


def _stored(row: Row) -> StoredWebhook:
    return record(StoredWebhook, row, webhook=record(Webhook, row), health=record(EndpointHealth, row))
