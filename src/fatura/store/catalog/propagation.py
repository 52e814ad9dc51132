"""SQL that moves a plan's subscribers to its current version (D-23).

Every statement selects the same subscribers: active, without private terms, and on another version than the new one.
If `from_version` is set, only subscribers on that version are selected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.offer import PaymentMethod
from fatura.domain.subscription import PaymentMethodSource
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True)
class Propagation:
    """A move of a plan's subscribers to a version, from `from_version` or, if it is None, from all other versions."""

    plan_id: UUID
    plan_version_id: UUID
    version: int
    from_version: int | None


@dataclass(frozen=True, slots=True)
class PaymentRoute:
    """How a subscriber pays. Whether a connection can charge under the new terms depends on it."""

    connection_id: UUID
    method: PaymentMethod
    source: PaymentMethodSource


@dataclass(frozen=True, slots=True)
class SubscriberGroup:
    """Subscribers whose next invoices have the same content, under the old terms and under the new ones."""

    plan_version_id: UUID
    cycle_count: int
    route: PaymentRoute
    subscribers: int


async def lock(tx: Tx, move: Propagation) -> int:
    """Lock the subscribers against the billing run and other writers; return their number.

    This waits for subscribers that are being billed. That invoice keeps the old terms; later ones use the new terms.
    """
    return await tx.fetchval(
        """
        SELECT count(*) FROM (
            SELECT s.subscription_id FROM subscription s
            WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
                AND s.plan_version_id <> $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
            ORDER BY s.subscription_id FOR NO KEY UPDATE
        ) locked
        """,
        move.plan_id,
        move.plan_version_id,
        move.from_version,
    )


async def groups(tx: Tx, move: Propagation) -> Sequence[SubscriberGroup]:
    """Return the subscribers, grouped by the values on which their next invoice depends."""
    rows = await tx.fetch(
        """
        SELECT s.plan_version_id, s.cycle_count, s.connection_id, s.payment_method AS method,
            s.payment_method_source AS source, count(*) AS subscribers
        FROM subscription s
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version_id <> $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
        GROUP BY s.plan_version_id, s.cycle_count, s.connection_id, s.payment_method, s.payment_method_source
        """,
        move.plan_id,
        move.plan_version_id,
        move.from_version,
    )
    return [record(SubscriberGroup, row, route=record(PaymentRoute, row)) for row in rows]


async def skipped(
    tx: Tx, move: Propagation, reasons: Sequence[tuple[PaymentRoute, str]]
) -> Sequence[tuple[UUID, str]]:
    """Return the subscribers of the given routes, each with its route's skip reason, ordered by id."""
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, u.reason
        FROM subscription s
        JOIN unnest($5::uuid[], $6::text[], $7::text[], $8::text[]) AS u (connection_id, method, source, reason)
            ON s.connection_id = u.connection_id AND s.payment_method = u.method AND s.payment_method_source = u.source
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version_id <> $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
        ORDER BY s.subscription_id
        """,
        move.plan_id,
        move.plan_version_id,
        move.from_version,
        [route.connection_id for route, _ in reasons],
        [route.method for route, _ in reasons],
        [route.source for route, _ in reasons],
        [reason for _, reason in reasons],
    )
    return [(row["subscription_id"], row["reason"]) for row in rows]


async def pin(tx: Tx, move: Propagation, methods: Sequence[tuple[PaymentRoute, PaymentMethod]]) -> int:
    """Set the version and payment method of the given routes' subscribers; return the number of subscribers."""
    return await tx.execute(
        """
        UPDATE subscription s SET plan_version_id = $3, plan_version = $5, payment_method = u.new_method
        FROM unnest($6::uuid[], $7::text[], $8::text[], $9::text[]) AS u (connection_id, method, source, new_method)
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version_id <> $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
            AND s.connection_id = u.connection_id AND s.payment_method = u.method AND s.payment_method_source = u.source
        """,
        move.plan_id,
        move.plan_version_id,
        move.from_version,
        move.version,
        [route.connection_id for route, _ in methods],
        [route.method for route, _ in methods],
        [route.source for route, _ in methods],
        [method for _, method in methods],
    )
