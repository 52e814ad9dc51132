"""SQL that reads and deletes the oldest rows of an account, in the order of an index.

The index entries of deleted rows remain until the next vacuum, and reading them takes time. So events and audit entries
are read by ranges of numbers above those already deleted. Numbers have no gaps, so the length of the range limits the
rows that a statement reads.
"""

from collections.abc import Sequence
from datetime import datetime

from fatura.domain.retention import Old
from fatura.store.db import Tx


async def oldest_events(tx: Tx, *, after: int, limit: int) -> Sequence[Old]:
    """Return the oldest events with numbers above `after`. The caller must have locked the webhook.

    `is_held` is true for an event that the account's enabled webhook still needs: the event has no delivery yet, its
    delivery is open, or its closed delivery still has to unblock the next delivery of the invoice.
    """
    return await tx.fetch_as(
        Old,
        """
        SELECT e.sequence, e.stored_at, e.created_at, coalesce(w.disabled_at IS NULL AND (
            e.sequence > w.fanned_out_to OR d.next_attempt_at IS NOT NULL OR d.waits IS NOT NULL
        ), false) AS is_held
        FROM event e
        LEFT JOIN delivery d ON d.account_id = $1 AND d.sequence = e.sequence
        LEFT JOIN webhook w ON w.account_id = $1
        WHERE e.account_id = $1 AND e.sequence > $2 AND e.sequence <= $3
        ORDER BY e.sequence
        """,
        after,
        after + limit,
    )


async def oldest_entries(tx: Tx, *, after: int, limit: int) -> Sequence[Old]:
    """Return the oldest audit entries with numbers above `after`."""
    return await tx.fetch_as(
        Old,
        """
        SELECT a.sequence, a.stored_at, a.created_at, false AS is_held FROM audit_entry a
        WHERE a.account_id = $1 AND a.sequence > $2 AND a.sequence <= $3 ORDER BY a.sequence
        """,
        after,
        after + limit,
    )


async def delete_attempts(tx: Tx, *, after: int, to: int, limit: int) -> Sequence[int]:
    """Delete up to `limit` attempts to deliver the events with numbers above `after` and up to `to`.

    For each deleted attempt, return the number of its event.
    """
    rows = await tx.fetch(
        """
        WITH old AS MATERIALIZED (
            SELECT x.sequence, x.attempt FROM delivery_attempt x
            WHERE x.account_id = $1 AND x.sequence > $2 AND x.sequence <= $3
            ORDER BY x.sequence, x.attempt LIMIT $4
        )
        DELETE FROM delivery_attempt a USING old o
        WHERE a.account_id = $1 AND a.sequence = o.sequence AND a.attempt = o.attempt
        RETURNING a.sequence
        """,
        after,
        to,
        limit,
    )
    return [row["sequence"] for row in rows]


async def delete_old_attempts(tx: Tx, *, stored_to: datetime, limit: int) -> Sequence[int]:
    """Delete up to `limit` attempts stored at `stored_to` or earlier, oldest first. Return their events' numbers."""
    rows = await tx.fetch(
        """
        WITH old AS MATERIALIZED (
            SELECT x.sequence, x.attempt FROM delivery_attempt x
            WHERE x.account_id = $1 AND x.stored_at <= $2 ORDER BY x.stored_at LIMIT $3
        )
        DELETE FROM delivery_attempt a USING old o
        WHERE a.account_id = $1 AND a.sequence = o.sequence AND a.attempt = o.attempt
        RETURNING a.sequence
        """,
        stored_to,
        limit,
    )
    return [row["sequence"] for row in rows]


async def first_stored_at(tx: Tx) -> datetime | None:
    """Return when the oldest stored attempt to deliver an event was stored, or None."""
    return await tx.fetchval("SELECT min(a.stored_at) FROM delivery_attempt a WHERE a.account_id = $1")


async def delete_events(tx: Tx, *, after: int, to: int) -> None:
    """Delete the events with numbers above `after` and up to `to`, and their deliveries, which must have no attempts.

    Also unblock the next open delivery of each invoice that had one of these events. The deleted deliveries can no
    longer unblock it.
    """
    await tx.execute(
        "DELETE FROM delivery d WHERE d.account_id = $1 AND d.sequence > $2 AND d.sequence <= $3", after, to
    )
    await tx.execute(
        """
        UPDATE delivery d SET waits = false
        FROM (
            SELECT DISTINCT e.invoice_id FROM event e
            WHERE e.account_id = $1 AND e.sequence > $2 AND e.sequence <= $3 AND e.invoice_id IS NOT NULL
        ) o
        WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits AND d.sequence = (
            SELECT min(f.sequence) FROM delivery f
            WHERE f.account_id = $1 AND f.ordered_by = o.invoice_id AND f.next_attempt_at IS NOT NULL
        )
        """,
        after,
        to,
    )
    await tx.execute(
        "DELETE FROM event e WHERE e.account_id = $1 AND e.sequence > $2 AND e.sequence <= $3", after, to
    )


async def skip_in_webhook(tx: Tx, *, to: int) -> None:
    """Let a disabled webhook continue after the deleted events when it is enabled again."""
    await tx.execute(
        "UPDATE webhook w SET fanned_out_to = $2 WHERE w.account_id = $1 AND w.fanned_out_to < $2", to
    )


async def delete_entries(tx: Tx, *, after: int, to: int) -> None:
    """Delete the audit entries with numbers above `after` and up to `to`."""
    await tx.execute(
        "DELETE FROM audit_entry a WHERE a.account_id = $1 AND a.sequence > $2 AND a.sequence <= $3",
        after,
        to,
    )


async def delete_price_calls(tx: Tx, *, closed_to: datetime, limit: int) -> int:
    """Delete the price calls of up to `limit` items whose invoices were closed at `closed_to` or earlier.

    Begin with the invoices that were closed first. Return the number of items.
    """
    return await tx.execute(
        """
        WITH old AS MATERIALIZED (
            SELECT p.invoice_id, p.position FROM price_pull p
            WHERE p.account_id = $1 AND p.closed_at <= $2 AND NOT p.calls_deleted
            ORDER BY p.closed_at LIMIT $3
        ), gone AS (
            DELETE FROM pricing_attempt a USING old o
            WHERE a.account_id = $1 AND a.invoice_id = o.invoice_id AND a.position = o.position
        )
        UPDATE price_pull p SET calls_deleted = true FROM old o
        WHERE p.account_id = $1 AND p.invoice_id = o.invoice_id AND p.position = o.position
        """,
        closed_to,
        limit,
    )


async def first_closed_at(tx: Tx) -> datetime | None:
    """Return the earliest closing time of an invoice whose price calls are not deleted yet, or None."""
    return await tx.fetchval(
        """
        SELECT min(p.closed_at) FROM price_pull p
        WHERE p.account_id = $1 AND p.closed_at IS NOT NULL AND NOT p.calls_deleted
        """
    )
