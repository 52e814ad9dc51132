"""SQL of `late_charge_check`: attempts marked absent whose charge may still appear (D-125)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.charging import ChargeAttempt
from fatura.store.db import Tx


async def plan(tx: Tx, invoice_id: UUID, number: int, *, next_check_at: datetime) -> None:
    """Start or restart an attempt's series of checks; `next_check_at` is on the account's clock."""
    await tx.execute(
        """
        INSERT INTO late_charge_check AS l (account_id, invoice_id, attempt, next_check_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (account_id, invoice_id, attempt) DO UPDATE
        SET checks_made = 0, next_check_at = EXCLUDED.next_check_at
        WHERE l.account_id = $1
        """,
        invoice_id,
        number,
        next_check_at,
    )


async def claim(tx: Tx, *, now: datetime, gaps: Sequence[timedelta], limit: int) -> Sequence[ChargeAttempt]:
    """Return attempts that are due for a check. Already schedule the next check of each, in case this worker dies.

    The first check schedules the second after the first of `gaps`, and so on. The check after the last gap is the last.
    """
    return await tx.fetch_as(
        ChargeAttempt,
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
        RETURNING a.invoice_id, a.attempt AS number, a.connection_id, a.state, a.amount_cents, a.charge_due_date,
            a.first_sent_at, a.sent_at, a.gateway_invoice_id, a.empty_lookups, a.looked_up_at, a.known_charge_ids,
            a.error_code
        """,
        now,
        [now + gap for gap in gaps],
        limit,
    )


async def make_earlier(tx: Tx, attempt: ChargeAttempt, *, next_check_at: datetime) -> None:
    """Schedule the next check no later than `next_check_at`."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET next_check_at = least(l.next_check_at, $4)
        WHERE l.account_id = $1 AND l.invoice_id = $2 AND l.attempt = $3
        """,
        attempt.invoice_id,
        attempt.number,
        next_check_at,
    )
