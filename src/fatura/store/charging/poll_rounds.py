"""SQL of `poll_round`: rounds, which poll all unpaid charges of a connection (D-190).

A round makes the unpaid invoices of the connection due for polling, in batches, in the order of their ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx

_LEAST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class PollRound:
    """The round of a connection.

    `next_step_at` is when the next round begins, or when the running round continues. A running round has visited the
    invoices with ids up to `done_to`; None means that no round is running. `began_at` is when the newest round began,
    and `made_due` is how many invoices it has made due. `again` is true if another round was requested while this one
    ran. `polls_per_minute` is the connection's budget of polls, or None if the connection has no limit.
    """

    connection_id: UUID
    next_step_at: datetime | None
    began_at: datetime | None
    done_to: UUID | None
    again: bool
    made_due: int
    polls_per_minute: int | None


async def lock(tx: Tx, connection_id: UUID) -> PollRound:
    """Lock and return the round of a connection. If the connection has no round yet, insert one without times."""
    await tx.execute(
        """
        INSERT INTO poll_round (account_id, connection_id) VALUES ($1, $2)
        ON CONFLICT (account_id, connection_id) DO NOTHING
        """,
        connection_id,
    )
    found = await tx.fetchrow_as(
        PollRound,
        """
        SELECT r.connection_id, r.next_step_at, r.began_at, r.done_to, r.again, r.made_due, h.polls_per_minute
        FROM poll_round r JOIN connection_health h ON h.connection_id = r.connection_id
        WHERE r.account_id = $1 AND h.account_id = $1 AND r.connection_id = $2 FOR NO KEY UPDATE OF r
        """,
        connection_id,
    )
    assert found is not None, "the row was inserted"
    return found


async def claim(tx: Tx, *, now: datetime) -> PollRound | None:
    """Lock and return the account's round that has been due longest. Rounds that are already locked are left out."""
    return await tx.fetchrow_as(
        PollRound,
        """
        SELECT r.connection_id, r.next_step_at, r.began_at, r.done_to, r.again, r.made_due, h.polls_per_minute
        FROM poll_round r JOIN connection_health h ON h.connection_id = r.connection_id
        WHERE r.account_id = $1 AND h.account_id = $1 AND r.next_step_at <= $2
        ORDER BY r.next_step_at LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED
        """,
        now,
    )


async def unpaid(tx: Tx, *, after: UUID | None, limit: int) -> Sequence[UUID]:
    """Return the ids of the account's first unpaid invoices, in order. With `after`, return only ids above it."""
    rows = await tx.fetch(
        """
        SELECT n.invoice_id FROM (
            (SELECT x.invoice_id FROM invoice x WHERE x.account_id = $1 AND x.status = 'issued' AND x.invoice_id > $2
            ORDER BY x.invoice_id LIMIT $3)
            UNION ALL
            (SELECT x.invoice_id FROM invoice x WHERE x.account_id = $1 AND x.status = 'overdue' AND x.invoice_id > $2
            ORDER BY x.invoice_id LIMIT $3)
        ) n ORDER BY n.invoice_id LIMIT $3
        """,
        after or _LEAST_ID,
        limit,
    )
    return [row["invoice_id"] for row in rows]


async def make_due(
    tx: Tx, connection_id: UUID, invoice_ids: Sequence[UUID], *, now: datetime, real_now: datetime
) -> Sequence[UUID]:
    """Make the connection's unpaid invoices among `invoice_ids` due for polling. Return those that became due.

    Invoices whose polling has ended do not change. A leased invoice becomes due once more, because the answer of the
    poll in progress may be older than the request for the round.
    """
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.invoice_id = ANY($3::uuid[]) AND x.connection_id = $2
                AND x.status IN ('issued', 'overdue')
                AND (x.next_attempt_at > $4 OR (x.next_attempt_at IS NOT NULL AND x.lease_until > $5))
            ORDER BY x.invoice_id FOR NO KEY UPDATE
        )
        UPDATE invoice v SET next_attempt_at = $4 FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        RETURNING v.invoice_id
        """,
        connection_id,
        invoice_ids,
        now,
        real_now,
    )
    return [row["invoice_id"] for row in rows]


async def save(tx: Tx, changed: PollRound) -> None:
    await tx.execute(
        """
        UPDATE poll_round r SET next_step_at = $3, began_at = $4, done_to = $5, again = $6, made_due = $7
        WHERE r.account_id = $1 AND r.connection_id = $2
        """,
        changed.connection_id,
        changed.next_step_at,
        changed.began_at,
        changed.done_to,
        changed.again,
        changed.made_due,
    )
