"""SQL that makes charges due for polling before their scheduled time (D-35, D-46).

A poll reads every confirmed charge of an invoice from the gateway. A `ready` invoice is not polled, because its
`next_attempt_at` schedules its issuance. If a webhook names a charge that a reissue has replaced, and the invoice is
`ready`, a late look-up of that charge is made due instead (D-125).
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx


async def make_named_due(
    tx: Tx,
    charges: Sequence[tuple[UUID, str]],
    *,
    now: datetime,
    real_now: datetime,
    polls_first: bool,
) -> int:
    """Make the invoices of these stored charges due for polling, except invoices that are `ready`.

    Return how many invoices changed. Each charge is given by its connection and by the gateway's id of the charge. With
    `polls_first`, the invoices are polled before others that are due.

    A leased invoice is being polled, and the answer may be older than the webhook. So the invoice becomes due again.
    Invoices that would not change are skipped, so that a repeated webhook writes nothing. Invoices are locked in id
    order, to avoid deadlocks.
    """
    return await tx.execute(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.status <> 'ready' AND x.invoice_id = ANY(ARRAY(
                    SELECT c.invoice_id FROM unnest($2::uuid[], $3::text[]) AS n (connection_id, gateway_charge_id)
                    JOIN charge c ON c.connection_id = n.connection_id AND c.gateway_invoice_id = n.gateway_charge_id
                    WHERE c.account_id = $1
                ))
                AND (x.next_attempt_at IS NULL OR x.next_attempt_at > $4 OR x.lease_until > $5
                    OR ($6 AND NOT x.polls_first))
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET polls_first = v.polls_first OR $6,
            next_attempt_at = CASE WHEN v.lease_until > $5 THEN $4 ELSE least(v.next_attempt_at, $4) END
        FROM due WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        """,
        [connection_id for connection_id, _ in charges],
        [gateway_charge_id for _, gateway_charge_id in charges],
        now,
        real_now,
        polls_first,
    )


async def make_earlier_due(tx: Tx, charges: Sequence[tuple[UUID, str]], *, now: datetime) -> int:
    """Restart the late look-ups of these charges, and make the first look-up of each due now.

    Each charge is given by its connection and by the gateway's id of the charge. Leave out charges whose invoice is not
    `ready`. If the invoice is `ready`, a reissue has replaced the charge. Return how many look-ups became due.
    """
    named = sorted(set(charges))  # INSERT refuses to update a row twice
    return await tx.execute(
        """
        INSERT INTO late_charge_check AS l (account_id, charge_id, connection_id, next_check_at)
        SELECT c.account_id, c.charge_id, c.connection_id, $4
        FROM unnest($2::uuid[], $3::text[]) AS n (connection_id, gateway_charge_id)
        JOIN charge c ON c.connection_id = n.connection_id AND c.gateway_invoice_id = n.gateway_charge_id
        JOIN invoice v ON v.invoice_id = c.invoice_id
        WHERE c.account_id = $1 AND v.account_id = $1 AND v.status = 'ready'
        ORDER BY c.charge_id
        ON CONFLICT (account_id, charge_id) DO UPDATE
        SET checks_made = 0, next_check_at = EXCLUDED.next_check_at,
            incomplete_since = CASE WHEN l.next_check_at IS NOT NULL THEN l.incomplete_since END,
            unread_ids = CASE WHEN l.next_check_at IS NOT NULL THEN l.unread_ids ELSE '{}' END,
            unread_since = CASE WHEN l.next_check_at IS NOT NULL THEN l.unread_since ELSE '{}' END
        WHERE l.account_id = $1 AND (l.next_check_at IS NULL OR l.next_check_at > EXCLUDED.next_check_at)
        """,
        [connection_id for connection_id, _ in named],
        [gateway_charge_id for _, gateway_charge_id in named],
        now,
    )


async def make_paid_due(tx: Tx, invoice_ids: Sequence[UUID], *, at: Sequence[datetime]) -> None:
    """Schedule a poll of each of these locked invoices that has a confirmed charge and is paid or canceled.

    A poll that is already scheduled for an earlier time stays.
    """
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = u.at
        FROM unnest($2::uuid[], $3::timestamptz[]) AS u (invoice_id, at)
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.invoice_id = u.invoice_id
            AND v.gateway_invoice_id IS NOT NULL AND v.status IN ('paid', 'canceled')
            AND (v.next_attempt_at IS NULL OR v.next_attempt_at > u.at)
        """,
        invoice_ids,
        at,
    )


async def make_due(tx: Tx, invoice_id: UUID, *, at: datetime, real_now: datetime) -> None:
    """Schedule a poll of an invoice's charges, unless the invoice is `ready` or was never issued.

    A poll that is already scheduled for an earlier time stays, so that repeated requests do not postpone it. If a poll
    is in progress, its answer may be outdated, so another poll is scheduled.
    """
    await tx.execute(
        """
        UPDATE invoice v
        SET next_attempt_at = CASE WHEN v.lease_until > $4 THEN $3 ELSE least(v.next_attempt_at, $3) END
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.gateway_invoice_id IS NOT NULL AND v.status <> 'ready'
        """,
        invoice_id,
        at,
        real_now,
    )


async def make_due_by(tx: Tx, invoice_ids: Sequence[UUID], *, at: Sequence[datetime]) -> None:
    """Schedule a poll of each of these locked invoices that has a confirmed charge and is not `ready`.

    A poll that is already scheduled for an earlier time stays.
    """
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = u.at
        FROM unnest($2::uuid[], $3::timestamptz[]) AS u (invoice_id, at)
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.invoice_id = u.invoice_id
            AND v.gateway_invoice_id IS NOT NULL AND v.status <> 'ready'
            AND (v.next_attempt_at IS NULL OR v.next_attempt_at > u.at)
        """,
        invoice_ids,
        at,
    )
