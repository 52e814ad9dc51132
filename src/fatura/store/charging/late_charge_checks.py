"""Attempts whose charge is looked for again, since it may have been made after it was believed absent (D-33)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from fatura.store.charging.charges import NewAttempt
from fatura.store.db import Tx, fields


async def plan(tx: Tx, invoice_id: UUID, attempt: int, *, next_check_at: datetime) -> None:
    """Have an attempt looked at again, on the account's clock, from the first look on."""
    await tx.execute(
        """
        INSERT INTO late_charge_check AS l (account_id, invoice_id, attempt, next_check_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (account_id, invoice_id, attempt) DO UPDATE
        SET checks_made = 0, next_check_at = EXCLUDED.next_check_at
        WHERE l.account_id = $1
        """,
        invoice_id,
        attempt,
        next_check_at,
    )


async def claim(
    tx: Tx, *, now: datetime, waits: Sequence[timedelta], limit: int
) -> Sequence[tuple[NewAttempt, datetime]]:
    """Return attempts that are due for a look, and when each was sent; each is due again after its next wait.

    So a look whose worker dies is made up for by the next one; after the last wait there is none.
    """
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id, x.attempt, x.checks_made FROM late_charge_check x
            WHERE x.account_id = $1 AND x.next_check_at <= $2
            ORDER BY x.next_check_at LIMIT $4
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE late_charge_check l SET checks_made = l.checks_made + 1, next_check_at = n.check_at
        FROM due JOIN charge_attempt a ON a.invoice_id = due.invoice_id AND a.attempt = due.attempt
        LEFT JOIN unnest($3::timestamptz[]) WITH ORDINALITY AS n (check_at, place) ON n.place = due.checks_made + 1
        WHERE l.account_id = $1 AND a.account_id = $1 AND l.invoice_id = due.invoice_id AND l.attempt = due.attempt
        RETURNING a.invoice_id, a.attempt, a.connection_id, a.amount_cents, a.charge_due_date, a.sent_at
        """,
        now,
        [now + wait for wait in waits],
        limit,
    )
    found: list[tuple[NewAttempt, datetime]] = []
    for row in rows:
        columns = fields(row)
        sent_at = columns.pop("sent_at")
        found.append((NewAttempt(**columns), sent_at))
    return found


async def put_off(tx: Tx, invoice_id: UUID, attempt: int, *, next_check_at: datetime) -> None:
    """Look again soon, whatever look that would be: the last one found what must not stay, or got no answer."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET next_check_at = least(l.next_check_at, $4)
        WHERE l.account_id = $1 AND l.invoice_id = $2 AND l.attempt = $3
        """,
        invoice_id,
        attempt,
        next_check_at,
    )
