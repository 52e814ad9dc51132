"""Deliveries, at most one row for each event, and their attempts (D-39)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.delivery import Attempt, AttemptResult, Delivery
from fatura.store.db import Tx, record

MAX_UNBLOCKED = 1000
"""Maximum number of closed deliveries that one call of `unblock_next_events` handles."""


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery to send, with its event; `attempts` is the number of earlier attempts."""

    sequence: int
    event_id: UUID
    type: str
    created_at: datetime
    data: str
    attempts: int
    next_attempt_at: datetime


async def fan_out(tx: Tx, *, after: int, now: datetime, limit: int) -> int:
    """Insert deliveries, due now, for the next `limit` events after number `after`; return the number of deliveries.

    A delivery waits while a delivery of an earlier event of the same invoice is open.
    """
    return await tx.execute(
        """
        INSERT INTO delivery (account_id, sequence, ordered_by, next_attempt_at, waits)
        SELECT o.account_id, n.sequence, n.invoice_id, $3, n.place > 1 OR EXISTS (
            SELECT FROM delivery b
            WHERE b.account_id = $1 AND b.ordered_by = n.invoice_id AND b.next_attempt_at IS NOT NULL
                AND b.waits IS NOT NULL
        )
        FROM account o CROSS JOIN (
            SELECT t.sequence, t.invoice_id,
                CASE WHEN t.invoice_id IS NULL THEN 1
                    ELSE row_number() OVER (PARTITION BY t.invoice_id ORDER BY t.sequence) END AS place
            FROM (
                SELECT e.sequence, e.invoice_id FROM event e
                WHERE e.account_id = $1 AND e.sequence > $2 ORDER BY e.sequence LIMIT $4
            ) t
        ) n
        WHERE o.account_id = $1
        """,
        after,
        now,
        limit,
    )


async def unblock_next_events(tx: Tx) -> None:
    """Unblock the next open delivery of each invoice that has newly closed deliveries."""
    await tx.execute(
        """
        WITH closed AS MATERIALIZED (
            SELECT d.sequence, e.invoice_id
            FROM delivery d JOIN event e ON e.account_id = $1 AND e.sequence = d.sequence
            WHERE d.account_id = $1 AND d.next_attempt_at IS NULL AND d.waits IS NOT NULL
            ORDER BY d.sequence LIMIT $2
        ), settled AS (
            UPDATE delivery d SET waits = NULL FROM closed c WHERE d.account_id = $1 AND d.sequence = c.sequence
        )
        UPDATE delivery d SET waits = false
        FROM (SELECT DISTINCT c.invoice_id FROM closed c) c
        WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits IS DISTINCT FROM false AND d.sequence = (
            SELECT min(f.sequence) FROM delivery f
            WHERE f.account_id = $1 AND f.ordered_by = c.invoice_id AND f.next_attempt_at IS NOT NULL
        )
        """,
        MAX_UNBLOCKED,
    )


async def due(tx: Tx, *, now: datetime, limit: int) -> Sequence[int]:
    """Return the numbers of due deliveries, lowest first. Leave out those that wait for another delivery."""
    rows = await tx.fetch(
        """
        SELECT d.sequence FROM delivery d
        WHERE d.account_id = $1 AND d.next_attempt_at <= $2 AND d.waits IS NOT TRUE AND NOT EXISTS (
            SELECT FROM delivery b
            WHERE b.account_id = $1 AND b.ordered_by = d.ordered_by AND b.sequence < d.sequence
                AND b.next_attempt_at IS NOT NULL
        )
        ORDER BY d.sequence LIMIT $3
        """,
        now,
        limit,
    )
    return [row["sequence"] for row in rows]


async def read(tx: Tx, sequences: Sequence[int]) -> Sequence[DueDelivery]:
    """Return deliveries with their events, lowest numbers first."""
    return await tx.fetch_as(
        DueDelivery,
        """
        SELECT d.sequence, e.event_id, e.type, e.created_at, e.data, d.attempts, d.next_attempt_at
        FROM delivery d JOIN event e ON e.account_id = $1 AND e.sequence = d.sequence
        WHERE d.account_id = $1 AND d.sequence = ANY($2::bigint[])
        ORDER BY d.sequence
        """,
        sequences,
    )


async def containing(tx: Tx, sequences: Sequence[int], *, text: str) -> set[int]:
    """Return the numbers of those events whose data contains `text`.

    The caller must have locked the deliveries. Otherwise, an erasure could change the data afterwards.
    """
    rows = await tx.fetch(
        """
        SELECT e.sequence FROM event e
        WHERE e.account_id = $1 AND e.sequence = ANY($2::int8[]) AND strpos(e.data, $3) > 0
        """,
        sequences,
        text,
    )
    return {row["sequence"] for row in rows}


async def put_off(tx: Tx, sequence: int, *, until: datetime) -> None:
    """Make an open delivery due at `until`, without counting an attempt."""
    await tx.execute(
        """
        UPDATE delivery d SET next_attempt_at = $3
        WHERE d.account_id = $1 AND d.sequence = $2 AND d.next_attempt_at IS NOT NULL
        """,
        sequence,
        until,
    )


async def next_due_at(tx: Tx) -> datetime | None:
    """Return when the earliest delivery is due, or None. Deliveries that wait for another delivery are left out.

    If `unblock_next_events` still has to process a closed delivery, return an instant in the past.
    """
    return await tx.fetchval(
        """
        SELECT least(
            (
                SELECT min(d.next_attempt_at) FROM delivery d
                WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits IS NOT TRUE AND NOT EXISTS (
                    SELECT FROM delivery b
                    WHERE b.account_id = $1 AND b.ordered_by = d.ordered_by AND b.sequence < d.sequence
                        AND b.next_attempt_at IS NOT NULL
                )
            ), (
                SELECT min(coalesce(d.delivered_at, d.given_up_at)) FROM delivery d
                WHERE d.account_id = $1 AND d.next_attempt_at IS NULL AND d.waits IS NOT NULL
            )
        )
        """
    )


async def due_for_probe(tx: Tx, *, now: datetime) -> Sequence[int]:
    """Return the number of the due delivery with the fewest attempts, or no number if no delivery is due.

    After a failed attempt, other deliveries come first, so a failing event does not block them.
    """
    rows = await tx.fetch(
        """
        SELECT n.sequence
        FROM (
            SELECT d.sequence, d.ordered_by, d.attempts FROM delivery d
            WHERE d.account_id = $1 AND d.next_attempt_at <= $2 AND d.waits IS NOT TRUE
            ORDER BY d.attempts, d.sequence
        ) n
        WHERE NOT EXISTS (
            SELECT FROM delivery b
            WHERE b.account_id = $1 AND b.ordered_by = n.ordered_by AND b.sequence < n.sequence
                AND b.next_attempt_at IS NOT NULL
        )
        ORDER BY n.attempts, n.sequence LIMIT 1
        """,
        now,
    )
    return [row["sequence"] for row in rows]


async def find(tx: Tx, sequence: int) -> Delivery | None:
    """Return an event's delivery, or None if the event has no delivery yet."""
    return await tx.fetchrow_as(
        Delivery,
        """
        SELECT d.sequence, d.attempts, d.failures, d.first_failed_at, d.failed_at, d.next_attempt_at,
            d.delivered_at, d.given_up_at
        FROM delivery d WHERE d.account_id = $1 AND d.sequence = $2
        """,
        sequence,
    )


async def lock(tx: Tx, sequences: Sequence[int]) -> Sequence[Delivery]:
    return await tx.fetch_as(
        Delivery,
        """
        SELECT d.sequence, d.attempts, d.failures, d.first_failed_at, d.failed_at, d.next_attempt_at,
            d.delivered_at, d.given_up_at
        FROM delivery d WHERE d.account_id = $1 AND d.sequence = ANY($2::bigint[])
        ORDER BY d.sequence FOR NO KEY UPDATE
        """,
        sequences,
    )


async def store(tx: Tx, changed: Sequence[Delivery]) -> None:
    """Store deliveries after an attempt.

    If another transaction gave up a delivery during the attempt, `ordered_by` becomes null. Later events of the invoice
    then do not wait for this delivery. A closed delivery keeps `waits` while a later delivery of the invoice is open,
    so that `unblock_next_events` unblocks the later delivery. Otherwise, `waits` of the closed delivery becomes null.

    The redundant condition on `$2` makes PostgreSQL use the primary key even before the table is first analyzed.
    """
    await tx.execute(
        """
        UPDATE delivery d SET attempts = u.attempts, failures = u.failures, first_failed_at = u.first_failed_at,
            failed_at = u.failed_at, next_attempt_at = u.next_attempt_at, delivered_at = u.delivered_at,
            given_up_at = u.given_up_at,
            ordered_by = CASE WHEN d.given_up_at IS NULL THEN d.ordered_by END,
            waits = CASE WHEN u.next_attempt_at IS NOT NULL OR EXISTS (
                SELECT FROM delivery n
                WHERE n.account_id = $1 AND n.ordered_by = e.invoice_id AND n.sequence > e.sequence
                    AND n.next_attempt_at IS NOT NULL
            ) THEN d.waits END
        FROM unnest($2::bigint[], $3::int[], $4::int[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[],
            $8::timestamptz[], $9::timestamptz[])
            AS u (sequence, attempts, failures, first_failed_at, failed_at, next_attempt_at, delivered_at, given_up_at)
        JOIN event e ON e.sequence = u.sequence
        WHERE d.account_id = $1 AND e.account_id = $1 AND d.sequence = ANY($2::bigint[]) AND d.sequence = u.sequence
        """,
        [each.sequence for each in changed],
        [each.attempts for each in changed],
        [each.failures for each in changed],
        [each.first_failed_at for each in changed],
        [each.failed_at for each in changed],
        [each.next_attempt_at for each in changed],
        [each.delivered_at for each in changed],
        [each.given_up_at for each in changed],
    )


async def log_attempts(tx: Tx, attempts: Sequence[Attempt], *, stored_at: datetime) -> None:
    """Insert attempts. `stored_at` is real time."""
    await tx.execute(
        """
        INSERT INTO delivery_attempt (account_id, sequence, attempt, url, outcome, response_status, latency_ms, error,
            response_body, created_at, stored_at)
        SELECT o.account_id, u.sequence, u.attempt, u.url, u.outcome, u.response_status, u.latency_ms, u.error,
            u.response_body, u.created_at, $11
        FROM account o
        CROSS JOIN unnest($2::bigint[], $3::int[], $4::text[], $5::text[], $6::int[], $7::int[], $8::text[], $9::text[],
            $10::timestamptz[])
            AS u (sequence, attempt, url, outcome, response_status, latency_ms, error, response_body, created_at)
        WHERE o.account_id = $1
        """,
        [each.sequence for each in attempts],
        [each.number for each in attempts],
        [each.url for each in attempts],
        [str(each.result.outcome) for each in attempts],
        [each.result.response_status for each in attempts],
        [each.result.latency_ms for each in attempts],
        [each.result.error for each in attempts],
        [each.result.response_body for each in attempts],
        [each.created_at for each in attempts],
        stored_at,
    )


async def attempts_of(tx: Tx, sequence: int, *, limit: int) -> Sequence[Attempt]:
    """Return the newest `limit` attempts to deliver an event, in the order of their numbers."""
    rows = await tx.fetch(
        """
        SELECT a.attempt AS number, a.url, a.outcome, a.response_status, a.latency_ms, a.error, a.response_body,
            a.created_at
        FROM delivery_attempt a WHERE a.account_id = $1 AND a.sequence = $2 ORDER BY a.attempt DESC LIMIT $3
        """,
        sequence,
        limit,
    )
    return [
        record(Attempt, row, sequence=sequence, result=record(AttemptResult, row)) for row in reversed(rows)
    ]


async def reschedule_after_outage(tx: Tx, *, failed_since: datetime, now: datetime) -> None:
    """Make open deliveries due now if their newest failure was at or after `failed_since` and before `now`.

    A delivery is made due in this way only once, unless its retry schedule is restarted afterwards.
    """
    await tx.execute(
        """
        UPDATE delivery d SET next_attempt_at = $3, hastened = true
        WHERE d.account_id = $1 AND d.next_attempt_at > $3 AND d.failed_at >= $2 AND d.failed_at < $3 AND NOT d.hastened
        """,
        failed_since,
        now,
    )


async def restart_all(tx: Tx, *, now: datetime) -> None:
    """Make every open delivery due now and restart its retry schedule."""
    await tx.execute(
        """
        UPDATE delivery d SET next_attempt_at = $2, failures = 0, first_failed_at = NULL, failed_at = NULL,
            hastened = false
        WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL
        """,
        now,
    )


async def reopen_given_up(tx: Tx, *, since: datetime, now: datetime) -> None:
    """Reopen the deliveries that were given up at or after `since`, due now and with restarted retry schedules."""
    await tx.execute(
        """
        UPDATE delivery d SET next_attempt_at = $3, given_up_at = NULL, failures = 0, first_failed_at = NULL,
            failed_at = NULL, hastened = false, waits = false
        WHERE d.account_id = $1 AND d.given_up_at >= $2
        """,
        since,
        now,
    )


async def give_up_all(tx: Tx, *, given_up_at: datetime) -> None:
    await tx.execute(
        """
        UPDATE delivery d SET next_attempt_at = NULL, waits = NULL,
            given_up_at = CASE WHEN d.delivered_at IS NULL THEN $2::timestamptz END
        WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL
        """,
        given_up_at,
    )


async def make_due(tx: Tx, sequence: int, *, now: datetime) -> None:
    """Make an open delivery due now and restart its retry schedule. It still waits for its invoice's earlier events."""
    await tx.execute(
        """
        UPDATE delivery d SET next_attempt_at = $3, failures = 0, first_failed_at = NULL, failed_at = NULL,
            hastened = false
        WHERE d.account_id = $1 AND d.sequence = $2 AND d.next_attempt_at IS NOT NULL
        """,
        sequence,
        now,
    )


async def reopen(tx: Tx, sequence: int, *, now: datetime) -> None:
    """Reopen a closed delivery or insert a new one, due now. The delivery does not wait for its invoice's other events.

    `delivered_at` is kept: an event that was delivered stays delivered, even if all further attempts fail.
    """
    await tx.execute(
        """
        INSERT INTO delivery (account_id, sequence, next_attempt_at, waits) VALUES ($1, $2, $3, false)
        ON CONFLICT (account_id, sequence) DO UPDATE SET next_attempt_at = EXCLUDED.next_attempt_at,
            ordered_by = NULL, given_up_at = NULL, failures = 0, first_failed_at = NULL, failed_at = NULL,
            hastened = false, waits = false
        """,
        sequence,
        now,
    )
