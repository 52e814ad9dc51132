"""Having charges asked after, or made, before their time (D-34, D-35, D-46).

Of those that a gateway's webhook names, one that is due already, and that nobody is asking after, is left alone: a
flood of webhooks writes nothing. Invoices are held in id order, as by all who hold several.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx


async def wake_named(
    tx: Tx, connection_id: UUID, charge_ids: Sequence[str], *, now: datetime, real_now: datetime
) -> int:
    """Have charges asked after at once by their ids in the gateway, whatever their invoices' states; return how many.

    A charge that is being asked after right now is asked after again: the answer on its way may be older.
    """
    return await tx.execute(
        """
        WITH woken AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.gateway_invoice_id = ANY($3::text[])
                AND (x.next_attempt_at IS NULL OR x.next_attempt_at > $4 OR x.lease_until > $5)
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET next_attempt_at = $4 FROM woken
        WHERE v.account_id = $1 AND v.invoice_id = woken.invoice_id
        """,
        connection_id,
        charge_ids,
        now,
        real_now,
    )


async def wake_open(tx: Tx, connection_id: UUID, *, now: datetime, real_now: datetime) -> int:
    """Have all of a connection's charges that are still asked after asked after at once; return how many."""
    return await tx.execute(
        """
        WITH woken AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.status IN ('issued', 'overdue')
                AND (x.next_attempt_at > $3 OR (x.next_attempt_at IS NOT NULL AND x.lease_until > $4))
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET next_attempt_at = $3 FROM woken
        WHERE v.account_id = $1 AND v.invoice_id = woken.invoice_id
        """,
        connection_id,
        now,
        real_now,
    )


async def wake_charge(tx: Tx, invoice_id: UUID, *, now: datetime) -> None:
    """Have a charge asked after at once, whatever its invoice's state."""
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = $3
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.gateway_invoice_id IS NOT NULL
        """,
        invoice_id,
        now,
    )


async def wake_connection(tx: Tx, connection_id: UUID, *, now: datetime) -> None:
    """Have all open invoices of a changed connection issued, or asked after, at once (D-34, D-46)."""
    await tx.execute(
        """
        WITH woken AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.status IN ('ready', 'issued', 'overdue')
                AND x.next_attempt_at IS NOT NULL
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET next_attempt_at = $3 FROM woken
        WHERE v.account_id = $1 AND v.invoice_id = woken.invoice_id
        """,
        connection_id,
        now,
    )
