"""SQL of `late_charge_check`: the schedule of late look-ups (D-125).

A late look-up checks whether the gateway has created a charge late, or twice. It is complete if its search was answered
and every charge that it had to read was read.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.charge import InvoiceCharge
from fatura.domain.unread_charges import UnreadCharges
from fatura.store.db import Tx


async def plan(tx: Tx, charge_ids: Sequence[UUID], *, next_check_at: datetime) -> None:
    """Start or restart the late look-ups of these charges; `next_check_at` is on the account's clock.

    If the earlier look-ups of a charge had ended, forget that they were incomplete, and which charges were
    unreadable.
    """
    await tx.execute(
        """
        INSERT INTO late_charge_check AS l (account_id, charge_id, connection_id, next_check_at)
        SELECT c.account_id, c.charge_id, c.connection_id, $3 FROM charge c
        WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[])
        ORDER BY c.charge_id
        ON CONFLICT (account_id, charge_id) DO UPDATE
        SET checks_made = 0, next_check_at = EXCLUDED.next_check_at,
            incomplete_since = CASE WHEN l.next_check_at IS NOT NULL THEN l.incomplete_since END,
            unread_ids = CASE WHEN l.next_check_at IS NOT NULL THEN l.unread_ids ELSE '{}' END,
            unread_since = CASE WHEN l.next_check_at IS NOT NULL THEN l.unread_since ELSE '{}' END
        WHERE l.account_id = $1
        """,
        charge_ids,
        next_check_at,
    )


async def due(tx: Tx, limits: Mapping[UUID, int], *, now: datetime) -> Sequence[tuple[UUID, UUID]]:
    """Return the connections and ids of charges whose late look-up is due, earliest due first.

    `limits` has the maximum number of charges of each connection.
    """
    rows = await tx.fetch(
        """
        SELECT c.connection_id, n.charge_id
        FROM unnest($2::uuid[], $3::int[]) AS c (connection_id, most)
        CROSS JOIN LATERAL (
            SELECT l.charge_id, l.next_check_at FROM late_charge_check l
            WHERE l.account_id = $1 AND l.connection_id = c.connection_id AND l.next_check_at <= $4
            ORDER BY l.next_check_at LIMIT c.most
        ) n
        ORDER BY n.next_check_at
        """,
        list(limits),
        list(limits.values()),
        now,
    )
    return [(row["connection_id"], row["charge_id"]) for row in rows]


async def claim(
    tx: Tx, charge_ids: Sequence[UUID], *, now: datetime, repeat_at: datetime
) -> Sequence[InvoiceCharge]:
    """Return those of the given charges whose late look-up is still due, and not locked.

    Schedule each of these look-ups again at `repeat_at`, in case this worker dies or gets no answer. If the gateway
    answers, `count` schedules the charge's next look-up.
    """
    return await tx.fetch_as(
        InvoiceCharge,
        """
        WITH due AS MATERIALIZED (
            SELECT x.charge_id FROM late_charge_check x
            WHERE x.account_id = $1 AND x.charge_id = ANY($2::uuid[]) AND x.next_check_at <= $3
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE late_charge_check l SET next_check_at = $4
        FROM due JOIN charge c ON c.charge_id = due.charge_id
        WHERE l.account_id = $1 AND c.account_id = $1 AND l.charge_id = due.charge_id
        RETURNING c.charge_id, c.invoice_id, c.number, c.connection_id, c.stage, c.amount_cents, c.currency,
            c.payment_method, c.installments, c.due_date, c.created_at, c.first_sent_at, c.sent_at, c.request_sealed,
            c.empty_lookups, c.looked_up_at, c.known_charge_ids, c.gateway_invoice_id, c.confirmed_at, c.closed_at,
            c.unknown_since, c.error_code
        """,
        charge_ids,
        now,
        repeat_at,
    )


async def make_due(tx: Tx, charge_ids: Sequence[UUID], *, now: datetime) -> None:
    """Make late look-ups that this transaction has claimed due again."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET next_check_at = $3
        WHERE l.account_id = $1 AND l.charge_id = ANY($2::uuid[])
        """,
        charge_ids,
        now,
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
    """End the late look-ups of a charge.

    If another transaction has rescheduled the look-ups since `claim` set `repeat_at`, change nothing.
    """
    await tx.execute(
        """
        UPDATE late_charge_check l SET next_check_at = NULL
        WHERE l.account_id = $1 AND l.charge_id = $2 AND l.next_check_at = $3
        """,
        charge_id,
        repeat_at,
    )


async def note_complete(tx: Tx, charge_id: UUID) -> None:
    """Store that the newest late look-up of a charge was complete, so no charge is unreadable."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET incomplete_since = NULL, unread_ids = '{}', unread_since = '{}'
        WHERE l.account_id = $1 AND l.charge_id = $2 AND (l.incomplete_since IS NOT NULL OR l.unread_ids <> '{}')
        """,
        charge_id,
    )


async def note_incomplete(tx: Tx, charge_id: UUID, *, now: datetime) -> tuple[datetime, UnreadCharges]:
    """Store that a late look-up of a charge was incomplete.

    Return the time since which the look-ups have been incomplete, and the charges that were unreadable before. If the
    stored time is later than `now`, a wrong clock wrote it, and `now` replaces it (D-5).
    """
    row = await tx.fetchrow(
        """
        UPDATE late_charge_check l SET incomplete_since = least(coalesce(l.incomplete_since, $3), $3)
        WHERE l.account_id = $1 AND l.charge_id = $2
        RETURNING l.incomplete_since, l.unread_ids, l.unread_since
        """,
        charge_id,
        now,
    )
    assert row is not None, "a claimed look-up is stored"
    return row["incomplete_since"], dict(zip(row["unread_ids"], row["unread_since"], strict=True))


async def lock_unread(tx: Tx, charge_id: UUID) -> UnreadCharges:
    """Lock the late look-ups of a charge. Return the charges at the gateway that they could not read."""
    row = await tx.fetchrow(
        """
        SELECT l.unread_ids, l.unread_since FROM late_charge_check l
        WHERE l.account_id = $1 AND l.charge_id = $2 FOR NO KEY UPDATE
        """,
        charge_id,
    )
    assert row is not None, "the look-ups were planned"
    return dict(zip(row["unread_ids"], row["unread_since"], strict=True))


async def save_unread(tx: Tx, charge_id: UUID, unread: UnreadCharges) -> None:
    """Store the charges at the gateway that late look-ups of this charge cannot read."""
    await tx.execute(
        """
        UPDATE late_charge_check l SET unread_ids = $3, unread_since = $4 WHERE l.account_id = $1 AND l.charge_id = $2
        """,
        charge_id,
        list(unread),
        list(unread.values()),
    )
