"""SQL of propagations, which move a plan's subscribers to one version of the plan in batches (D-23, D-54).

The target version and the progress are stored. All statements that select subscribers use the same conditions: the
subscriber is active, has no terms of its own, and is on an older version than the target. If `from_version` is set,
only subscribers on that version are selected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.offer import PaymentMethod
from fatura.domain.propagation import SKIPPED_SHOWN, Propagation, SkipReason
from fatura.domain.subscription import PaymentMethodSource
from fatura.store.db import Row, Tx, check_rows, record

NO_SUBSCRIPTION = UUID(int=0)
"""An id that is less than any subscription's id."""


@dataclass(frozen=True, slots=True)
class Target:
    """The version to which a plan's subscribers move. With `from_version`, only subscribers on that version move."""

    plan_id: UUID
    version: int
    from_version: int | None


@dataclass(frozen=True, slots=True)
class PaymentRoute:
    """How a subscriber pays. These values decide whether the subscriber's connection can charge under the new terms."""

    connection_id: UUID
    method: PaymentMethod
    source: PaymentMethodSource


@dataclass(frozen=True, slots=True)
class SubscriberGroup:
    """Subscribers whose next invoices have equal content, both under the old terms and under the new terms."""

    plan_version_id: UUID
    cycle_count: int
    route: PaymentRoute
    subscribers: int


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A locked subscriber that a batch moves or skips."""

    subscription_id: UUID
    plan_version_id: UUID
    cycle_count: int
    route: PaymentRoute


async def insert(tx: Tx, new: Propagation) -> None:
    await tx.execute(
        """
        INSERT INTO propagation (account_id, propagation_id, plan_id, plan_version_id, version, from_version, status,
            moved, skipped, cents_before, cents_after, created_at, worked_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, 0, $8, $8)
        """,
        new.propagation_id,
        new.plan_id,
        new.plan_version_id,
        new.version,
        new.from_version,
        new.status,
        new.created_at,
    )


async def find(tx: Tx, propagation_id: UUID) -> Propagation | None:
    row = await tx.fetchrow(
        """
        SELECT p.propagation_id, p.plan_id, p.plan_version_id, p.version, p.from_version, p.status, p.visited_to,
            p.moved, p.skipped, p.cents_before, p.cents_after, p.created_at, p.ended_at
        FROM propagation p WHERE p.account_id = $1 AND p.propagation_id = $2
        """,
        propagation_id,
    )
    return None if row is None else _propagation(row)


async def newest_of_plan(tx: Tx, plan_id: UUID) -> Propagation | None:
    row = await tx.fetchrow(
        """
        SELECT p.propagation_id, p.plan_id, p.plan_version_id, p.version, p.from_version, p.status, p.visited_to,
            p.moved, p.skipped, p.cents_before, p.cents_after, p.created_at, p.ended_at
        FROM propagation p WHERE p.account_id = $1 AND p.plan_id = $2 ORDER BY p.propagation_id DESC LIMIT 1
        """,
        plan_id,
    )
    return None if row is None else _propagation(row)


async def lock_running_of_plan(tx: Tx, plan_id: UUID) -> Propagation | None:
    """Lock and return the plan's running propagation, or return None. Wait until a batch in progress is committed."""
    row = await tx.fetchrow(
        """
        SELECT p.propagation_id, p.plan_id, p.plan_version_id, p.version, p.from_version, p.status, p.visited_to,
            p.moved, p.skipped, p.cents_before, p.cents_after, p.created_at, p.ended_at
        FROM propagation p WHERE p.account_id = $1 AND p.plan_id = $2 AND p.status = 'running' FOR NO KEY UPDATE
        """,
        plan_id,
    )
    return None if row is None else _propagation(row)


async def waiting_longest(tx: Tx) -> UUID | None:
    """Return the id of the account's running propagation that has waited longest for its next batch, or None."""
    return await tx.fetchval(
        """
        SELECT p.propagation_id FROM propagation p
        WHERE p.account_id = $1 AND p.status = 'running' ORDER BY p.worked_at LIMIT 1
        """
    )


async def claim_running(tx: Tx, propagation_id: UUID) -> Propagation | None:
    """Lock a propagation and return it, or None if it has ended or another process works on it.

    The lock is the claim, so a crash ends the claim.
    """
    row = await tx.fetchrow(
        """
        SELECT p.propagation_id, p.plan_id, p.plan_version_id, p.version, p.from_version, p.status, p.visited_to,
            p.moved, p.skipped, p.cents_before, p.cents_after, p.created_at, p.ended_at
        FROM propagation p
        WHERE p.account_id = $1 AND p.propagation_id = $2 AND p.status = 'running' FOR NO KEY UPDATE SKIP LOCKED
        """,
        propagation_id,
    )
    return None if row is None else _propagation(row)


async def advance(
    tx: Tx,
    propagation_id: UUID,
    *,
    visited_to: UUID | None,
    moved: int,
    skipped: int,
    cents: tuple[int, int],
    worked_at: datetime,
    is_done: bool,
) -> None:
    """Add the results of a batch to the stored progress. If `visited_to` is None, the stored value is kept.

    `cents` has the total of the moved subscribers' next invoices under the old terms, and the total under the new
    terms. With `is_done`, the propagation ends.
    """
    await tx.execute(
        """
        UPDATE propagation p SET visited_to = coalesce($3, p.visited_to), moved = p.moved + $4,
            cents_before = p.cents_before + $5::numeric, cents_after = p.cents_after + $6::numeric, worked_at = $7,
            status = CASE WHEN $8::boolean THEN 'done' ELSE p.status END,
            ended_at = CASE WHEN $8::boolean THEN $7 ELSE p.ended_at END, skipped = p.skipped + $9
        WHERE p.account_id = $1 AND p.propagation_id = $2 AND p.status = 'running'
        """,
        propagation_id,
        visited_to,
        moved,
        *cents,
        worked_at,
        is_done,
        skipped,
    )


async def replace(tx: Tx, propagation_id: UUID, *, ended_at: datetime) -> None:
    await tx.execute(
        """
        UPDATE propagation p SET status = 'replaced', ended_at = $3
        WHERE p.account_id = $1 AND p.propagation_id = $2 AND p.status = 'running'
        """,
        propagation_id,
        ended_at,
    )


async def lock_subscribers(tx: Tx, of: Propagation, *, limit: int) -> Sequence[Subscriber]:
    """Lock the next subscribers against the billing run and other writers. Return them in the order of their ids.

    If a billing run is generating a subscriber's invoice, wait for the run's commit. That invoice keeps the old
    terms; later invoices have the new terms. Fewer than `limit` subscribers are returned only if no more exist.
    """
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, s.plan_version_id, s.cycle_count, s.connection_id, s.payment_method AS method,
            s.payment_method_source AS source
        FROM subscription s
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version < $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
            AND s.subscription_id > $5
        ORDER BY s.subscription_id LIMIT $6 FOR NO KEY UPDATE
        """,
        of.plan_id,
        of.version,
        of.from_version,
        of.visited_to or NO_SUBSCRIPTION,
        limit,
    )
    return [record(Subscriber, row, route=record(PaymentRoute, row)) for row in rows]


async def next_id(tx: Tx, of: Propagation) -> UUID | None:
    """Lock the next subscriber and return only its id, or None if no more exist."""
    return await tx.fetchval(
        """
        SELECT s.subscription_id FROM subscription s
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version < $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
            AND s.subscription_id > $5
        ORDER BY s.subscription_id LIMIT 1 FOR NO KEY UPDATE
        """,
        of.plan_id,
        of.version,
        of.from_version,
        of.visited_to or NO_SUBSCRIPTION,
    )


async def pin(tx: Tx, to: Propagation, moves: Sequence[tuple[UUID, PaymentMethod]]) -> None:
    """Move locked subscribers to the target version. `moves` has each subscription with its new payment method."""
    touched = await tx.execute(
        """
        UPDATE subscription s SET plan_version_id = $2, plan_version = $3, payment_method = u.method
        FROM unnest($4::uuid[], $5::text[]) AS u (subscription_id, method)
        WHERE s.account_id = $1 AND s.subscription_id = u.subscription_id
        """,
        to.plan_version_id,
        to.version,
        [subscription_id for subscription_id, _ in moves],
        [method for _, method in moves],
    )
    check_rows(touched, len(moves))


async def skip(tx: Tx, propagation_id: UUID, skipped: Sequence[tuple[UUID, SkipReason]]) -> None:
    await tx.execute(
        """
        INSERT INTO propagation_skip (account_id, propagation_id, subscription_id, reason)
        SELECT o.account_id, $2, u.subscription_id, u.reason
        FROM account o CROSS JOIN unnest($3::uuid[], $4::text[]) AS u (subscription_id, reason)
        WHERE o.account_id = $1
        """,
        propagation_id,
        [subscription_id for subscription_id, _ in skipped],
        [reason for _, reason in skipped],
    )


async def delete_skipped(tx: Tx, propagation_id: UUID) -> None:
    """Delete the list of subscribers that an ended propagation has skipped, but not the count `skipped` (D-180)."""
    await tx.execute(
        "DELETE FROM propagation_skip k WHERE k.account_id = $1 AND k.propagation_id = $2", propagation_id
    )


async def skipped_by(tx: Tx, propagation_id: UUID) -> Sequence[tuple[UUID, SkipReason]]:
    """Return the first SKIPPED_SHOWN subscribers that a propagation has skipped so far, ordered by id."""
    rows = await tx.fetch(
        """
        SELECT k.subscription_id, k.reason FROM propagation_skip k
        WHERE k.account_id = $1 AND k.propagation_id = $2 ORDER BY k.subscription_id LIMIT $3
        """,
        propagation_id,
        SKIPPED_SHOWN,
    )
    return [(row["subscription_id"], SkipReason(row["reason"])) for row in rows]


async def groups(tx: Tx, target: Target) -> Sequence[SubscriberGroup]:
    """Group the subscribers by the values on which their next invoice depends. No row is locked."""
    rows = await tx.fetch(
        """
        SELECT s.plan_version_id, s.cycle_count, s.connection_id, s.payment_method AS method,
            s.payment_method_source AS source, count(*) AS subscribers
        FROM subscription s
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version < $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
        GROUP BY s.plan_version_id, s.cycle_count, s.connection_id, s.payment_method, s.payment_method_source
        """,
        target.plan_id,
        target.version,
        target.from_version,
    )
    return [record(SubscriberGroup, row, route=record(PaymentRoute, row)) for row in rows]


async def would_skip(
    tx: Tx, target: Target, reasons: Sequence[tuple[PaymentRoute, int, SkipReason]]
) -> Sequence[tuple[UUID, SkipReason]]:
    """Return the first SKIPPED_SHOWN subscribers that a propagation would skip, each with the reason, ordered by id.

    Each element of `reasons` has a payment route, a `cycle_count`, and the reason to skip the subscribers that have
    these two values.
    """
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, u.reason
        FROM subscription s
        JOIN unnest($5::uuid[], $6::text[], $7::text[], $8::int4[], $9::text[])
            AS u (connection_id, method, source, cycle_count, reason)
            ON s.connection_id = u.connection_id AND s.payment_method = u.method AND s.payment_method_source = u.source
            AND s.cycle_count = u.cycle_count
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version < $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
        ORDER BY s.subscription_id LIMIT $10
        """,
        target.plan_id,
        target.version,
        target.from_version,
        [route.connection_id for route, _, _ in reasons],
        [route.method for route, _, _ in reasons],
        [route.source for route, _, _ in reasons],
        [cycle_count for _, cycle_count, _ in reasons],
        [reason for _, _, reason in reasons],
        SKIPPED_SHOWN,
    )
    return [(row["subscription_id"], SkipReason(row["reason"])) for row in rows]


def _propagation(row: Row) -> Propagation:
    return record(
        Propagation, row, cents_before=int(row["cents_before"]), cents_after=int(row["cents_after"])
    )
