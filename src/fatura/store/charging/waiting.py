"""SQL of invoices whose issuance or poll waits until their connection works again (D-34, D-55).

Without a call of `wake`, a waiting invoice becomes due within about an hour.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from uuid import UUID

from fatura.domain.invoice_states import InvoiceStatus
from fatura.store import leases
from fatura.store.db import Tx


async def mark(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    """Set `waits_for_connection` of scheduled invoices. The next claim of an invoice clears this flag."""
    await tx.execute(
        """
        UPDATE invoice v SET waits_for_connection = true
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.next_attempt_at IS NOT NULL
        """,
        invoice_ids,
    )


async def lock(tx: Tx, connection_id: UUID, *, due_after: datetime, limit: int) -> Sequence[UUID]:
    """Lock up to `limit` waiting invoices that become due after `due_after`. Return their ids, earliest due first.

    If more than `limit` invoices wait, lock those with the lowest ids. Invoices that another transaction has locked are
    skipped, because a worker is claiming them now.
    """
    rows = await tx.fetch(
        """
        SELECT v.invoice_id, v.next_attempt_at FROM invoice v
        WHERE v.account_id = $1 AND v.connection_id = $2 AND v.waits_for_connection AND v.next_attempt_at > $3
        ORDER BY v.invoice_id LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED
        """,
        connection_id,
        due_after,
        limit,
    )
    return [row["invoice_id"] for row in sorted(rows, key=itemgetter("next_attempt_at"))]


async def wake(tx: Tx, invoice_ids: Sequence[UUID], *, due_at: Sequence[datetime]) -> None:
    """Make locked invoices due at the given instants, unless they are due earlier. Clear `waits_for_connection`."""
    await tx.execute(
        """
        UPDATE invoice v SET waits_for_connection = false, next_attempt_at = least(v.next_attempt_at, u.due_at)
        FROM unnest($2::uuid[], $3::timestamptz[]) AS u (invoice_id, due_at)
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.invoice_id = u.invoice_id
        """,
        invoice_ids,
        due_at,
    )


async def claim(
    tx: Tx,
    connection_id: UUID,
    statuses: Sequence[InvoiceStatus],
    *,
    real_now: datetime,
    lease_until: datetime,
) -> Sequence[UUID]:
    """Lease one waiting invoice of the connection: of those with these statuses, the one that becomes due first.

    Return a list with the invoice's id, or an empty list if no such invoice waits.
    """
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.waits_for_connection
                AND x.status = ANY($3::text[]) AND x.next_attempt_at IS NOT NULL
                AND (x.lease_until IS NULL OR x.lease_until <= $4 OR x.lease_until > $6)
            ORDER BY x.next_attempt_at LIMIT 1
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE invoice v SET lease_until = $5, waits_for_connection = false FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        RETURNING v.invoice_id
        """,
        connection_id,
        statuses,
        real_now,
        lease_until,
        leases.horizon(real_now),
    )
    return [row["invoice_id"] for row in rows]
