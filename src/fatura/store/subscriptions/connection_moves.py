"""SQL that moves the active subscriptions of a connection to another connection, in batches (D-59)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.connection_move import ConnectionMove, MoveStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.propagation import SKIPPED_SHOWN, SkipReason
from fatura.store.db import Tx, check_rows, record

NO_SUBSCRIPTION = UUID(int=0)
"""An id that is less than any subscription's id."""


@dataclass(frozen=True, slots=True)
class ChargeKind:
    """How a subscription is charged. These values decide whether a connection can bill the subscription."""

    plan_version_id: UUID
    cycle_count: int
    method: PaymentMethod
    max_installments: int


@dataclass(frozen=True, slots=True)
class MovableGroup:
    """Subscriptions that are charged in the same way."""

    kind: ChargeKind
    subscriptions: int


@dataclass(frozen=True, slots=True)
class Movable:
    """A locked subscription that a batch moves or skips."""

    subscription_id: UUID
    kind: ChargeKind


async def insert(tx: Tx, new: ConnectionMove) -> None:
    await tx.execute(
        """
        INSERT INTO connection_move (account_id, connection_move_id, from_connection_id, to_connection_id, status,
            moved, skipped, created_at, worked_at)
        VALUES ($1, $2, $3, $4, $5, 0, 0, $6, $6)
        """,
        new.connection_move_id,
        new.from_connection_id,
        new.to_connection_id,
        new.status,
        new.created_at,
    )


async def find(tx: Tx, connection_move_id: UUID) -> ConnectionMove | None:
    return await tx.fetchrow_as(
        ConnectionMove,
        """
        SELECT m.connection_move_id, m.from_connection_id, m.to_connection_id, m.status, m.visited_to, m.moved,
            m.skipped, m.created_at, m.ended_at
        FROM connection_move m WHERE m.account_id = $1 AND m.connection_move_id = $2
        """,
        connection_move_id,
    )


async def newest_from(tx: Tx, connection_id: UUID) -> ConnectionMove | None:
    return await tx.fetchrow_as(
        ConnectionMove,
        """
        SELECT m.connection_move_id, m.from_connection_id, m.to_connection_id, m.status, m.visited_to, m.moved,
            m.skipped, m.created_at, m.ended_at
        FROM connection_move m WHERE m.account_id = $1 AND m.from_connection_id = $2
        ORDER BY m.connection_move_id DESC LIMIT 1
        """,
        connection_id,
    )


async def running(tx: Tx) -> Sequence[ConnectionMove]:
    """Return the account's running moves. The move that has waited longest for its next batch comes first."""
    return await tx.fetch_as(
        ConnectionMove,
        """
        SELECT m.connection_move_id, m.from_connection_id, m.to_connection_id, m.status, m.visited_to, m.moved,
            m.skipped, m.created_at, m.ended_at
        FROM connection_move m WHERE m.account_id = $1 AND m.status = 'running' ORDER BY m.worked_at
        """,
    )


async def claim_running(tx: Tx, connection_move_id: UUID) -> ConnectionMove | None:
    """Lock a move and return it, or None if it has ended or another process works on it.

    The lock is the claim, so a crash ends the claim.
    """
    return await tx.fetchrow_as(
        ConnectionMove,
        """
        SELECT m.connection_move_id, m.from_connection_id, m.to_connection_id, m.status, m.visited_to, m.moved,
            m.skipped, m.created_at, m.ended_at
        FROM connection_move m
        WHERE m.account_id = $1 AND m.connection_move_id = $2 AND m.status = 'running'
        FOR NO KEY UPDATE SKIP LOCKED
        """,
        connection_move_id,
    )


async def advance(
    tx: Tx,
    of: ConnectionMove,
    *,
    visited_to: UUID | None,
    moved: int,
    skipped: int,
    worked_at: datetime,
    status: MoveStatus = MoveStatus.RUNNING,
) -> None:
    """Add the results of a batch to the stored progress. If `status` is not RUNNING, the move ends."""
    await tx.execute(
        """
        UPDATE connection_move m SET visited_to = $3, moved = m.moved + $4, skipped = m.skipped + $5, worked_at = $6,
            status = $7, ended_at = CASE WHEN $7 = 'running' THEN NULL ELSE $6::timestamptz END
        WHERE m.account_id = $1 AND m.connection_move_id = $2 AND m.status = 'running'
        """,
        of.connection_move_id,
        visited_to,
        moved,
        skipped,
        worked_at,
        status,
    )


async def lock_subscriptions(tx: Tx, of: ConnectionMove, *, limit: int) -> Sequence[Movable]:
    """Lock the next subscriptions against the billing run and other writers. Return them in the order of their ids.

    If a billing run is generating a subscription's invoice, wait for the run's commit. That invoice keeps the old
    connection. Fewer than `limit` subscriptions are returned only if no more exist.
    """
    # NOT EXISTS is not used, because PostgreSQL would turn it into a join. With old statistics, the join can take time
    # quadratic in the number of skipped rows.
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, s.plan_version_id, s.cycle_count, s.payment_method AS method, v.max_installments
        FROM subscription s JOIN plan_version v ON v.plan_version_id = s.plan_version_id
        WHERE s.account_id = $1 AND v.account_id = $1 AND s.connection_id = $2 AND s.status = 'active'
            AND s.subscription_id > $3
            AND (
                SELECT k.reason FROM connection_move_skip k
                WHERE k.account_id = $1 AND k.connection_move_id = $4 AND k.subscription_id = s.subscription_id
            ) IS NULL
        ORDER BY s.subscription_id LIMIT $5 FOR NO KEY UPDATE OF s
        """,
        of.from_connection_id,
        of.visited_to or NO_SUBSCRIPTION,
        of.connection_move_id,
        limit,
    )
    return [Movable(row["subscription_id"], record(ChargeKind, row)) for row in rows]


async def next_id(tx: Tx, of: ConnectionMove) -> UUID | None:
    """Lock the next subscription and return only its id, or None if no more exist."""
    return await tx.fetchval(
        """
        SELECT s.subscription_id FROM subscription s
        WHERE s.account_id = $1 AND s.connection_id = $2 AND s.status = 'active' AND s.subscription_id > $3
            AND (
                SELECT k.reason FROM connection_move_skip k
                WHERE k.account_id = $1 AND k.connection_move_id = $4 AND k.subscription_id = s.subscription_id
            ) IS NULL
        ORDER BY s.subscription_id LIMIT 1 FOR NO KEY UPDATE OF s
        """,
        of.from_connection_id,
        of.visited_to or NO_SUBSCRIPTION,
        of.connection_move_id,
    )


async def lock_for_end(tx: Tx, of: ConnectionMove) -> bool:
    """Lock the old connection against new subscriptions. Return True if no subscription is left to move.

    The lock waits for requests that are creating a subscription on the connection. Later requests of this kind wait
    until this transaction ends, so the query for subscriptions that are left must be quick. Like `lock_subscriptions`,
    this query finds each skipped subscription by index.
    """
    await tx.execute(
        "SELECT FROM gateway_connection g WHERE g.account_id = $1 AND g.connection_id = $2 FOR UPDATE",
        of.from_connection_id,
    )
    return await tx.fetchval(
        """
        SELECT NOT EXISTS (
            SELECT FROM subscription s
            WHERE s.account_id = $1 AND s.connection_id = $2 AND s.status = 'active' AND (
                SELECT k.reason FROM connection_move_skip k
                WHERE k.account_id = $1 AND k.connection_move_id = $3 AND k.subscription_id = s.subscription_id
            ) IS NULL
        )
        """,
        of.from_connection_id,
        of.connection_move_id,
    )


async def pin(tx: Tx, to_connection_id: UUID, subscription_ids: Sequence[UUID]) -> None:
    """Pin locked subscriptions to another connection, which bills them from their next cycle on."""
    touched = await tx.execute(
        """
        UPDATE subscription s SET connection_id = $2
        WHERE s.account_id = $1 AND s.subscription_id = ANY($3::uuid[])
        """,
        to_connection_id,
        subscription_ids,
    )
    check_rows(touched, len(subscription_ids))


async def skip(tx: Tx, of: ConnectionMove, skipped: Sequence[tuple[UUID, SkipReason]]) -> None:
    await tx.execute(
        """
        INSERT INTO connection_move_skip (account_id, connection_move_id, subscription_id, reason)
        SELECT o.account_id, $2, u.subscription_id, u.reason
        FROM account o CROSS JOIN unnest($3::uuid[], $4::text[]) AS u (subscription_id, reason)
        WHERE o.account_id = $1
        """,
        of.connection_move_id,
        [subscription_id for subscription_id, _ in skipped],
        [reason for _, reason in skipped],
    )


async def delete_skipped(tx: Tx, connection_move_id: UUID) -> None:
    """Delete the list of subscriptions that an ended move has skipped, but not the count `skipped` (D-180)."""
    await tx.execute(
        "DELETE FROM connection_move_skip k WHERE k.account_id = $1 AND k.connection_move_id = $2",
        connection_move_id,
    )


async def skipped_by(tx: Tx, connection_move_id: UUID) -> Sequence[tuple[UUID, SkipReason]]:
    """Return the first SKIPPED_SHOWN subscriptions that a move has skipped so far, ordered by id."""
    rows = await tx.fetch(
        """
        SELECT k.subscription_id, k.reason FROM connection_move_skip k
        WHERE k.account_id = $1 AND k.connection_move_id = $2 ORDER BY k.subscription_id LIMIT $3
        """,
        connection_move_id,
        SKIPPED_SHOWN,
    )
    return [(row["subscription_id"], SkipReason(row["reason"])) for row in rows]


async def groups(tx: Tx, connection_id: UUID) -> Sequence[MovableGroup]:
    """Group a connection's active subscriptions by how they are charged. No row is locked."""
    rows = await tx.fetch(
        """
        SELECT s.plan_version_id, s.cycle_count, s.payment_method AS method, v.max_installments,
            count(*) AS subscriptions
        FROM subscription s JOIN plan_version v ON v.plan_version_id = s.plan_version_id
        WHERE s.account_id = $1 AND v.account_id = $1 AND s.connection_id = $2 AND s.status = 'active'
        GROUP BY s.plan_version_id, s.cycle_count, s.payment_method, v.max_installments
        """,
        connection_id,
    )
    return [MovableGroup(record(ChargeKind, row), row["subscriptions"]) for row in rows]


async def would_skip(
    tx: Tx, connection_id: UUID, reasons: Sequence[tuple[ChargeKind, SkipReason]]
) -> Sequence[tuple[UUID, SkipReason]]:
    """Return the first SKIPPED_SHOWN subscriptions that a move would skip, each with the reason, ordered by id.

    Each element of `reasons` is a pair: a way of charging, and the reason to skip the subscriptions that are charged
    in this way.
    """
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, u.reason
        FROM subscription s
        JOIN unnest($3::uuid[], $4::int4[], $5::text[], $6::text[]) AS u (plan_version_id, cycle_count, method, reason)
            ON s.plan_version_id = u.plan_version_id AND s.cycle_count = u.cycle_count AND s.payment_method = u.method
        WHERE s.account_id = $1 AND s.connection_id = $2 AND s.status = 'active'
        ORDER BY s.subscription_id LIMIT $7
        """,
        connection_id,
        [kind.plan_version_id for kind, _ in reasons],
        [kind.cycle_count for kind, _ in reasons],
        [kind.method for kind, _ in reasons],
        [reason for _, reason in reasons],
        SKIPPED_SHOWN,
    )
    return [(row["subscription_id"], SkipReason(row["reason"])) for row in rows]
