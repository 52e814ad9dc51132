"""SQL that makes charges due for polling before their scheduled time (D-35, D-46).

For a webhook, charges that are already due and not leased are skipped, so that repeated webhooks write nothing.
Invoices are locked in id order, to avoid deadlocks.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx


async def make_named_due(
    tx: Tx, connection_id: UUID, charge_ids: Sequence[str], *, now: datetime, real_now: datetime
) -> int:
    """Schedule polls of the charges with these gateway ids, in any invoice state; return the number that changed.

    A leased charge is polled once more, because the answer of the poll in progress may be older than the webhook.
    """
    return await tx.execute(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.gateway_invoice_id = ANY($3::text[])
                AND (x.next_attempt_at IS NULL OR x.next_attempt_at > $4 OR x.lease_until > $5)
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET next_attempt_at = $4 FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        """,
        connection_id,
        charge_ids,
        now,
        real_now,
    )


async def make_open_due(tx: Tx, connection_id: UUID, *, now: datetime, real_now: datetime) -> int:
    """Make a connection's open charges due unless their polling has ended; return the number that changed."""
    return await tx.execute(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.status IN ('issued', 'overdue')
                AND (x.next_attempt_at > $3 OR (x.next_attempt_at IS NOT NULL AND x.lease_until > $4))
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET next_attempt_at = $3 FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        """,
        connection_id,
        now,
        real_now,
    )


async def make_due(tx: Tx, invoice_id: UUID, *, at: datetime) -> None:
    """Schedule the next poll of an invoice's charge, in any invoice state."""
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = $3
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.gateway_invoice_id IS NOT NULL
        """,
        invoice_id,
        at,
    )


async def make_connection_due(tx: Tx, connection_id: UUID, *, now: datetime) -> None:
    """Make the invoices of a changed connection due if they wait for issuing or polling (D-34, D-46)."""
    await tx.execute(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.status IN ('ready', 'issued', 'overdue')
                AND x.next_attempt_at IS NOT NULL
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET next_attempt_at = $3 FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        """,
        connection_id,
        now,
    )
