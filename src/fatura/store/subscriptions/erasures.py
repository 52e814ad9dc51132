"""SQL of `erasure`: which customers are erased, and how far the erasure of each has come (D-62, D-226)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from fatura.store.db import Tx


class Stage(StrEnum):
    """The rows from which the erasure removes the customer's data now."""

    SUBSCRIPTIONS = "subscriptions"
    INVOICES = "invoices"
    ANSWERS = "answers"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Erasure:
    """The erasure of a customer. `stage` and the `visited_` fields say up to which rows the data is erased."""

    customer_id: UUID
    requested_at: datetime
    stage: Stage
    visited_id: UUID | None = None
    visited_cycle: int | None = None
    visited_key: str | None = None


@dataclass(frozen=True, slots=True)
class Uses:
    """Why a customer cannot be erased. At most MAX_SHOWN ids of each kind are listed."""

    subscription_ids: Sequence[UUID]
    invoice_ids: Sequence[UUID]
    pending_invoice_ids: Sequence[UUID]


MAX_SHOWN = 20


async def uses(tx: Tx, customer_id: UUID, *, real_now: datetime) -> Uses:
    """Return a customer's active subscriptions, open invoices, and closed invoices that are not settled.

    A closed invoice is not settled while it has a charge that could still be created, an open refund, a merchant's
    request in progress, or a price call without an outcome.
    """
    active = await tx.fetch(
        """
        SELECT s.subscription_id FROM subscription s
        WHERE s.account_id = $1 AND s.customer_id = $2 AND s.status = 'active'
        ORDER BY s.subscription_id LIMIT $3
        """,
        customer_id,
        MAX_SHOWN,
    )
    opened = await tx.fetch(
        """
        SELECT v.invoice_id FROM subscription s JOIN invoice v ON v.subscription_id = s.subscription_id
        WHERE s.account_id = $1 AND v.account_id = $1 AND s.customer_id = $2 AND v.status NOT IN ('paid', 'canceled')
        ORDER BY v.invoice_id LIMIT $3
        """,
        customer_id,
        MAX_SHOWN,
    )
    pending = await tx.fetch(
        """
        SELECT v.invoice_id FROM subscription s JOIN invoice v ON v.subscription_id = s.subscription_id
        WHERE s.account_id = $1 AND v.account_id = $1 AND s.customer_id = $2 AND v.status IN ('paid', 'canceled') AND (
            EXISTS (
                SELECT FROM charge c WHERE c.account_id = $1 AND c.invoice_id = v.invoice_id
                    AND c.stage IN ('planned', 'sending', 'unknown', 'absent')
            ) OR EXISTS (
                SELECT FROM refund_request r WHERE r.account_id = $1 AND r.invoice_id = v.invoice_id
                    AND r.closed_at IS NULL
            ) OR EXISTS (
                SELECT FROM merchant_request m WHERE m.account_id = $1 AND m.invoice_id = v.invoice_id
                    AND m.in_progress_until > $3
            ) OR EXISTS (
                SELECT FROM pricing_attempt t WHERE t.account_id = $1 AND t.invoice_id = v.invoice_id
                    AND t.outcome IS NULL
            )
        )
        ORDER BY v.invoice_id LIMIT $4
        """,
        customer_id,
        real_now,
        MAX_SHOWN,
    )
    return Uses(
        [row["subscription_id"] for row in active],
        [row["invoice_id"] for row in opened],
        [row["invoice_id"] for row in pending],
    )


async def open_invoices(tx: Tx, customer_id: UUID) -> Sequence[UUID]:
    """Return all open invoices of a customer. `uses` returns at most MAX_SHOWN of them."""
    rows = await tx.fetch(
        """
        SELECT v.invoice_id FROM subscription s JOIN invoice v ON v.subscription_id = s.subscription_id
        WHERE s.account_id = $1 AND v.account_id = $1 AND s.customer_id = $2 AND v.status NOT IN ('paid', 'canceled')
        ORDER BY v.invoice_id
        """,
        customer_id,
    )
    return [row["invoice_id"] for row in rows]


async def insert(tx: Tx, customer_id: UUID, *, requested_at: datetime) -> None:
    await tx.execute(
        """
        INSERT INTO erasure (account_id, customer_id, requested_at, next_attempt_at, stage)
        VALUES ($1, $2, $3, $3, 'subscriptions')
        """,
        customer_id,
        requested_at,
    )


async def find(tx: Tx, customer_id: UUID) -> Erasure | None:
    return await tx.fetchrow_as(
        Erasure,
        """
        SELECT e.customer_id, e.requested_at, e.stage, e.visited_id, e.visited_cycle, e.visited_key
        FROM erasure e WHERE e.account_id = $1 AND e.customer_id = $2
        """,
        customer_id,
    )


async def first_due(tx: Tx, *, now: datetime) -> UUID | None:
    """Return the customer whose unfinished erasure has been due longest, or None if none is due."""
    return await tx.fetchval(
        """
        SELECT e.customer_id FROM erasure e
        WHERE e.account_id = $1 AND e.stage <> 'done' AND e.next_attempt_at <= $2 ORDER BY e.next_attempt_at LIMIT 1
        """,
        now,
    )


async def put_off(tx: Tx, customer_id: UUID, *, until: datetime) -> None:
    await tx.execute(
        "UPDATE erasure e SET next_attempt_at = $3 WHERE e.account_id = $1 AND e.customer_id = $2",
        customer_id,
        until,
    )


async def claim_running(tx: Tx, customer_id: UUID) -> Erasure | None:
    """Lock an erasure and return it, or None if it is done or another process works on it.

    The lock is the claim, so a crash ends the claim.
    """
    return await tx.fetchrow_as(
        Erasure,
        """
        SELECT e.customer_id, e.requested_at, e.stage, e.visited_id, e.visited_cycle, e.visited_key
        FROM erasure e
        WHERE e.account_id = $1 AND e.customer_id = $2 AND e.stage <> 'done' FOR NO KEY UPDATE SKIP LOCKED
        """,
        customer_id,
    )


async def store(tx: Tx, erasure: Erasure) -> None:
    """Store the progress of a locked erasure."""
    await tx.execute(
        """
        UPDATE erasure e SET stage = $3, visited_id = $4, visited_cycle = $5, visited_key = $6
        WHERE e.account_id = $1 AND e.customer_id = $2
        """,
        erasure.customer_id,
        erasure.stage,
        erasure.visited_id,
        erasure.visited_cycle,
        erasure.visited_key,
    )


async def page(tx: Tx, *, after: UUID, limit: int) -> Sequence[UUID]:
    """Return the ids above `after` of customers whose erasure was requested: the first `limit` ids, in order."""
    rows = await tx.fetch(
        """
        SELECT e.customer_id FROM erasure e
        WHERE e.account_id = $1 AND e.customer_id > $2 ORDER BY e.customer_id LIMIT $3
        """,
        after,
        limit,
    )
    return [row["customer_id"] for row in rows]


async def is_erased(tx: Tx, invoice_id: UUID) -> bool:
    """Return whether the customer of an invoice is erased, or is being erased."""
    return bool(await invoices_of_erased(tx, [invoice_id]))


async def invoices_of_erased(tx: Tx, invoice_ids: Sequence[UUID]) -> frozenset[UUID]:
    """Return those of the given invoices whose customer is erased or being erased.

    If the caller has locked the invoices, an erasure that begins later also removes what this transaction stores.
    """
    rows = await tx.fetch(
        """
        SELECT v.invoice_id
        FROM invoice v
        JOIN subscription s ON s.subscription_id = v.subscription_id
        JOIN customer c ON c.customer_id = s.customer_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND c.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
            AND c.email IS NULL
        """,
        invoice_ids,
    )
    return frozenset(row["invoice_id"] for row in rows)
