"""The schedule of price calls: one row for each variable item, claimed with a lease (D-29)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from uuid import UUID

from fatura.store import leases
from fatura.store.db import Tx

ItemKey = tuple[UUID, int]
"""An invoice and the position of one of its items."""


async def insert(tx: Tx, keys: Sequence[ItemKey], *, due_at: datetime) -> None:
    """Schedule the first call of new pending items."""
    await tx.execute(
        """
        INSERT INTO price_pull (account_id, invoice_id, position, next_attempt_at)
        SELECT o.account_id, u.invoice_id, u.position, $4
        FROM account o CROSS JOIN unnest($2::uuid[], $3::int2[]) AS u (invoice_id, position)
        WHERE o.account_id = $1
        """,
        *columns(keys),
        due_at,
    )


async def claim(
    tx: Tx, *, now: datetime, real_now: datetime, lease_until: datetime, limit: int
) -> Sequence[ItemKey]:
    """Lease items whose scheduled call is due, earliest first.

    An item whose lease has expired can be claimed only after its unanswered call was recorded as lost. So an item never
    has two scheduled calls in progress.
    """
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id, x.position FROM price_pull x
            WHERE x.account_id = $1 AND x.next_attempt_at <= $2 AND (x.lease_until IS NULL OR (
                (x.lease_until <= $3 OR x.lease_until > $6) AND NOT EXISTS (
                    SELECT FROM pricing_attempt a
                    WHERE a.account_id = $1 AND a.invoice_id = x.invoice_id AND a.position = x.position
                        AND a.outcome IS NULL AND NOT a.by_hand
                )
            ))
            ORDER BY x.next_attempt_at LIMIT $5
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE price_pull p SET lease_until = $4 FROM due
        WHERE p.account_id = $1 AND p.invoice_id = due.invoice_id AND p.position = due.position
        RETURNING p.invoice_id, p.position
        """,
        now,
        real_now,
        lease_until,
        limit,
        leases.horizon(real_now),
    )
    return [(row["invoice_id"], row["position"]) for row in rows]


async def put_off(tx: Tx, item: ItemKey, *, until: datetime) -> None:
    """End the lease of a leased item, and schedule its call at `until`."""
    await tx.execute(
        """
        UPDATE price_pull p SET lease_until = NULL, next_attempt_at = $4
        WHERE p.account_id = $1 AND p.invoice_id = $2 AND p.position = $3
        """,
        *item,
        until,
    )


async def put_off_warning(tx: Tx, item: ItemKey, *, until: datetime) -> None:
    await tx.execute(
        """
        UPDATE price_pull p SET warn_at = $4
        WHERE p.account_id = $1 AND p.invoice_id = $2 AND p.position = $3 AND p.warn_at IS NOT NULL
        """,
        *item,
        until,
    )


async def of_invoice(tx: Tx, invoice_id: UUID, *, real_now: datetime) -> Sequence[ItemKey]:
    """Lock and return an invoice's pending items, except items with an open call that a client requested."""
    rows = await tx.fetch(
        """
        SELECT p.position FROM price_pull p
        JOIN invoice_item i ON i.invoice_id = p.invoice_id AND i.position = p.position
        WHERE p.account_id = $1 AND i.account_id = $1 AND p.invoice_id = $2 AND i.pricing_status = 'pending'
            AND NOT EXISTS (
                SELECT FROM pricing_attempt a
                WHERE a.account_id = $1 AND a.invoice_id = p.invoice_id AND a.position = p.position AND a.by_hand
                    AND a.outcome IS NULL AND a.open_until > $3 AND a.open_until <= $4
            )
        ORDER BY p.position FOR NO KEY UPDATE OF p
        """,
        invoice_id,
        real_now,
        leases.horizon(real_now),
    )
    return [(invoice_id, row["position"]) for row in rows]


@dataclass(frozen=True, slots=True)
class PendingItem:
    """The data for an item's next call, with the product's current URL and cap (D-29)."""

    invoice_id: UUID
    position: int
    item_id: UUID
    url: str
    cap_cents: int
    product_id: UUID
    product_ref: str | None
    subscription_id: UUID
    subscription_ref: str | None
    customer_ref: str
    period_start: date
    period_end: date
    cycle: int


async def pending_items(tx: Tx, keys: Sequence[ItemKey]) -> Sequence[PendingItem]:
    """Return the data for the next call of each item that is still pending."""
    return await tx.fetch_as(
        PendingItem,
        """
        SELECT i.invoice_id, i.position, i.item_id, r.endpoint_url AS url, r.cap_cents, r.product_id,
            r.external_ref AS product_ref, s.subscription_id, s.external_ref AS subscription_ref,
            c.external_ref AS customer_ref, v.period_start, v.period_end, v.cycle
        FROM unnest($2::uuid[], $3::int2[]) AS u (invoice_id, position)
        JOIN invoice_item i ON i.invoice_id = u.invoice_id AND i.position = u.position
        JOIN invoice v ON v.invoice_id = i.invoice_id
        JOIN subscription s ON s.subscription_id = v.subscription_id
        JOIN customer c ON c.customer_id = s.customer_id
        JOIN product r ON r.product_id = i.product_id
        WHERE i.account_id = $1 AND v.account_id = $1 AND s.account_id = $1 AND c.account_id = $1
            AND r.account_id = $1 AND i.pricing_status = 'pending'
        """,
        *columns(keys),
    )


@dataclass(frozen=True, slots=True)
class PricePull:
    """An item's call schedule; `pending` is true while the item has no value."""

    invoice_id: UUID
    position: int
    item_id: UUID
    product_id: UUID
    pending: bool
    next_attempt_at: datetime | None
    warn_at: datetime | None
    failures: int
    first_attempt_at: datetime | None
    first_failed_at: datetime | None

    @property
    def item(self) -> ItemKey:
        return self.invoice_id, self.position

    def ended(self) -> "PricePull":
        """Return a copy of the schedule in which no call and no warning is planned."""
        return replace(self, next_attempt_at=None, warn_at=None)


async def lock(tx: Tx, keys: Sequence[ItemKey]) -> Sequence[PricePull]:
    """Lock the schedules of items, in key order; the caller must have locked their invoices."""
    return await tx.fetch_as(
        PricePull,
        """
        SELECT p.invoice_id, p.position, i.item_id, i.product_id, i.pricing_status = 'pending' AS pending,
            p.next_attempt_at, p.warn_at, p.failures, p.first_attempt_at, p.first_failed_at
        FROM price_pull p JOIN invoice_item i ON i.invoice_id = p.invoice_id AND i.position = p.position
        WHERE p.account_id = $1 AND i.account_id = $1 AND (p.invoice_id, p.position) IN (
            SELECT u.invoice_id, u.position FROM unnest($2::uuid[], $3::int2[]) AS u (invoice_id, position)
        )
        ORDER BY p.invoice_id, p.position FOR NO KEY UPDATE OF p
        """,
        *columns(keys),
    )


async def save(tx: Tx, pulls: Sequence[PricePull], *, released: Collection[ItemKey] = ()) -> None:
    """Write locked schedules. End the leases of the items in `released`."""
    await tx.execute(
        """
        UPDATE price_pull p SET next_attempt_at = u.next_attempt_at, warn_at = u.warn_at, failures = u.failures,
            first_failed_at = u.first_failed_at, lease_until = CASE WHEN u.released THEN NULL ELSE p.lease_until END
        FROM unnest($2::uuid[], $3::int2[], $4::timestamptz[], $5::timestamptz[], $6::int2[], $7::timestamptz[],
                $8::bool[])
            AS u (invoice_id, position, next_attempt_at, warn_at, failures, first_failed_at, released)
        WHERE p.account_id = $1 AND p.invoice_id = ANY($2::uuid[]) AND p.invoice_id = u.invoice_id
            AND p.position = u.position
        """,
        *columns([pull.item for pull in pulls]),
        [pull.next_attempt_at for pull in pulls],
        [pull.warn_at for pull in pulls],
        [pull.failures for pull in pulls],
        [pull.first_failed_at for pull in pulls],
        [pull.item in released for pull in pulls],
    )


async def end(tx: Tx, invoice_ids: Sequence[UUID], *, closed_at: datetime) -> None:
    """Cancel the scheduled calls and warnings of invoices that were paid or canceled at `closed_at` (real time)."""
    await tx.execute(
        """
        UPDATE price_pull p SET next_attempt_at = NULL, warn_at = NULL, closed_at = coalesce(p.closed_at, $3)
        WHERE p.account_id = $1 AND p.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
        closed_at,
    )


async def due_warnings(tx: Tx, *, now: datetime, limit: int) -> Sequence[ItemKey]:
    """Return the items for which the event `invoice.pricing_warning` is due."""
    rows = await tx.fetch(
        """
        SELECT p.invoice_id, p.position FROM price_pull p
        WHERE p.account_id = $1 AND p.warn_at <= $2 ORDER BY p.warn_at LIMIT $3
        """,
        now,
        limit,
    )
    return [(row["invoice_id"], row["position"]) for row in rows]


def columns(keys: Sequence[ItemKey]) -> tuple[list[UUID], list[int]]:
    return [invoice_id for invoice_id, _ in keys], [position for _, position in keys]
