"""A plan's subscribers moved to its current version: counted, held and pinned anew in sets, however many (D-23).

Who is meant is the same everywhere: active, not customized, on another version, and on `from_version` if one is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.offer import PaymentMethod
from fatura.domain.subscription import PaymentMethodSource
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class Move:
    """Where a plan's subscribers go: to one of its versions, from another one or from all others."""

    plan_id: UUID
    plan_version_id: UUID
    version: int
    from_version: int | None


@dataclass(frozen=True, slots=True)
class Payment:
    """How a subscriber pays: what decides whether the new terms can be issued for it."""

    connection_id: UUID
    method: PaymentMethod
    source: PaymentMethodSource


@dataclass(frozen=True, slots=True)
class Group:
    """Subscribers that are billed the same in their next cycle, before the move and after it."""

    plan_version_id: UUID
    cycle_count: int
    payment: Payment
    subscribers: int


async def hold(tx: Tx, move: Move) -> int:
    """Hold the subscribers against the billing run and other writers until the commit; return how many they are.

    What is being billed now is waited for, and moves with its next cycle.
    """
    return await tx.fetchval(
        """
        SELECT count(*) FROM (
            SELECT s.subscription_id FROM subscription s
            WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
                AND s.plan_version_id <> $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
            ORDER BY s.subscription_id FOR NO KEY UPDATE
        ) held
        """,
        move.plan_id,
        move.plan_version_id,
        move.from_version,
    )


async def groups(tx: Tx, move: Move) -> Sequence[Group]:
    """Return the subscribers by what decides their next cycle."""
    rows = await tx.fetch(
        """
        SELECT s.plan_version_id, s.cycle_count, s.connection_id, s.payment_method, s.payment_method_source,
            count(*) AS subscribers
        FROM subscription s
        WHERE s.account_id = $1 AND s.plan_id = $2 AND s.status = 'active' AND NOT s.customized
            AND s.plan_version_id <> $3 AND ($4::int4 IS NULL OR s.plan_version = $4)
        GROUP BY s.plan_version_id, s.cycle_count, s.connection_id, s.payment_method, s.payment_method_source
        """,
        move.plan_id,
        move.plan_version_id,
        move.from_version,
    )
    return [
        Group(
            row["plan_version_id"],
            row["cycle_count"],
            Payment(
                row["connection_id"],
                PaymentMethod(row["payment_method"]),
                PaymentMethodSource(row["payment_method_source"]),
            ),
            row["subscribers"],
        )
        for row in rows
    ]


async def skipped(tx: Tx, move: Move, reasons: Sequence[tuple[Payment, str]]) -> Sequence[tuple[UUID, str]]:
    """Return the subscribers that pay in ways which the new terms rule out, each with its reason, by their ids."""
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
        [payment.connection_id for payment, _ in reasons],
        [payment.method for payment, _ in reasons],
        [payment.source for payment, _ in reasons],
        [reason for _, reason in reasons],
    )
    return [(row["subscription_id"], row["reason"]) for row in rows]


async def pin(tx: Tx, move: Move, methods: Sequence[tuple[Payment, PaymentMethod]]) -> int:
    """Pin the subscribers that pay in the given ways to the version, each way with its new method; return how many."""
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
        [payment.connection_id for payment, _ in methods],
        [payment.method for payment, _ in methods],
        [payment.source for payment, _ in methods],
        [method for _, method in methods],
    )
