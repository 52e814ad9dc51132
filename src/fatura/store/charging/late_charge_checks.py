"""SQL of `late_charge_check`: the schedule of late look-ups (D-125).

A late look-up checks whether the gateway has created a charge late, or twice. It is complete if its search was answered
and every charge that it had to read was read.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.charge import InvoiceCharge
from fatura.store.db import Tx


async def plan(tx: Tx, charge_ids: Sequence[UUID], *, next_check_at: datetime) -> None:
    """Start or restart the late look-ups of these charges; `next_check_at` is on the account's clock.

    If the earlier look-ups of a charge had ended, the late look-ups no longer count as incomplete or reported.
    """
    await tx.execute(
        """
        INSERT INTO late_charge_check AS l (account_id, charge_id, next_check_at)
        SELECT c.account_id, c.charge_id, $3 FROM charge c
        WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[])
        ORDER BY c.charge_id
        ON CONFLICT (account_id, charge_id) DO UPDATE
        SET checks_made = 0, next_check_at = EXCLUDED.next_check_at,
            incomplete_since = CASE WHEN l.next_check_at IS NOT NULL THEN l.incomplete_since END,
            is_reported = l.is_reported AND l.next_check_at IS NOT NULL
        WHERE l.account_id = $1
        """,
        charge_ids,
        next_check_at,
    )


async def claim(tx: Tx, *, now: datetime, repeat_at: datetime, limit: int) -> Sequence[InvoiceCharge]:
    """Return up to `limit` charges whose late look-up is due.

    Schedule each of these look-ups again at `repeat_at`, in case this worker dies or gets no answer. If the gateway
    answers, `count` schedules the charge's next look-up.
    """
    return await tx.fetch_as(
        InvoiceCharge,
        """
        WITH due AS MATERIALIZED (
            SELECT x.charge_id FROM late_charge_check x
            WHERE x.account_id = $1 AND x.next_check_at <= $2
            ORDER BY x.next_check_at LIMIT $4
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE late_charge_check l SET next_check_at = $3
        FROM due JOIN charge c ON c.charge_id = due.charge_id
        WHERE l.account_id = $1 AND c.account_id = $1 AND l.charge_id = due.charge_id
        RETURNING c.charge_id, c.invoice_id, c.number, c.connection_id, c.stage, c.amount_cents, c.currency,
            c.payment_method, c.installments, c.due_date, c.created_at, c.first_sent_at, c.sent_at, c.request_sealed,
            c.empty_lookups, c.looked_up_at, c.known_charge_ids, c.gateway_invoice_id, c.confirmed_at, c.closed_at,
            c.unknown_since, c.error_code
        """,
        now,
        repeat_at,
        limit,
    )


async def put_off(tx: Tx, charge_id: UUID, *, repeat_at: datetime, until: datetime) -> None:
    """Postpone a claimed late look-up to `until`.

    If another transaction has rescheduled the look-up since `claim` set `repeat_at`, change nothing.
    """
    await tx.execute(
        """
        UPDATE late_charge_check l SET next_check_at = $4
        WHERE l.account_id = $1 AND l.charge_id = $2 AND l.next_check_at = $3
        """,
        charge_id,
        repeat_at,
        until,
    )


async def count(tx: Tx, charge_id: UUID, *, repeat_at: datetime, next_checks_at: Sequence[datetime]) -> None:
    """Count a complete late look-up, and schedule the charge's next look-up.

    `next_checks_at` has the times of the second look-up, the third look-up, and so on. After the last time, no look-up
    follows. If another transaction has rescheduled the look-up since `claim` set `repeat_at`, change nothing.
    """
    await tx.execute(
        """
        UPDATE late_charge_check l SET checks_made = l.checks_made + 1, next_check_at = (
            SELECT n.check_at FROM unnest($4::timestamptz[]) WITH ORDINALITY AS n (check_at, place)
            WHERE n.place = l.checks_made + 1
        )
        WHERE l.account_id = $1 AND l.charge_id = $2 AND l.next_check_at = $3
        """,
        charge_id,
        repeat_at,
        next_checks_at,
    )


async def end(tx: Tx, charge_id: UUID, *, repeat_at: datetime) -> None:
    """End the late look-ups of a charge. If another transaction has rescheduled them since `claim`, change nothing."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET next_check_at = NULL
        WHERE l.account_id = $1 AND l.charge_id = $2 AND l.next_check_at = $3
        """,
        charge_id,
        repeat_at,
    )


async def note_complete(tx: Tx, charge_id: UUID) -> None:
    """Store that the newest late look-up of a charge was complete."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET incomplete_since = NULL, is_reported = false
        WHERE l.account_id = $1 AND l.charge_id = $2 AND (l.incomplete_since IS NOT NULL OR l.is_reported)
        """,
        charge_id,
    )


async def note_incomplete(tx: Tx, charge_id: UUID, *, now: datetime) -> tuple[datetime, bool]:
    """Store that a late look-up of a charge was incomplete.

    Return the time since which the look-ups have been incomplete, and whether an event has reported this. If the stored
    time is later than `now`, a wrong clock wrote it, and `now` replaces it (D-5).
    """
    row = await tx.fetchrow(
        """
        UPDATE late_charge_check l SET incomplete_since = least(coalesce(l.incomplete_since, $3), $3)
        WHERE l.account_id = $1 AND l.charge_id = $2
        RETURNING l.incomplete_since, l.is_reported
        """,
        charge_id,
        now,
    )
    assert row is not None, "a claimed look-up is stored"
    return row["incomplete_since"], row["is_reported"]


async def note_reported(tx: Tx, charge_id: UUID) -> None:
    """Store that an event has reported the charges at the gateway that late look-ups of this charge cannot read."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET is_reported = true WHERE l.account_id = $1 AND l.charge_id = $2
        """,
        charge_id,
    )
