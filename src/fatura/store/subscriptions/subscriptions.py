"""Queries for subscriptions with their customers; those of the billing run are in `store.billing.generation`."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.filters import SubscriptionFilter
from fatura.domain.offer import PaymentMethod
from fatura.domain.subscription import Customer, PaymentMethodSource, Subscription, SubscriptionStatus
from fatura.store.db import Row, Tx


async def insert(tx: Tx, subscription: Subscription, *, generate_at: datetime) -> None:
    """Insert a subscription; `generate_at` is when its first cycle becomes due for generation."""
    await tx.execute(
        """
        INSERT INTO subscription (account_id, subscription_id, external_ref, plan_id, plan_version_id, plan_version,
            customized, customer_id, status, charge_day, payment_method, payment_method_source, connection_id,
            cycle_count, commitment_cycles, next_period_start, next_due_date, generate_at, started_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
        """,
        subscription.subscription_id,
        subscription.external_ref,
        subscription.plan_id,
        subscription.plan_version_id,
        subscription.plan_version,
        subscription.customized,
        subscription.customer.customer_id,
        subscription.status,
        subscription.charge_day,
        subscription.payment_method,
        subscription.payment_method_source,
        subscription.connection_id,
        subscription.cycle_count,
        subscription.commitment_cycles,
        subscription.next_period_start,
        subscription.next_due_date,
        generate_at,
        subscription.started_at,
    )


async def find(tx: Tx, subscription_id: UUID) -> Subscription | None:
    row = await tx.fetchrow(
        """
        SELECT s.subscription_id, s.external_ref, s.plan_id, s.plan_version_id, s.plan_version, s.customized,
            s.status, s.charge_day, s.payment_method, s.payment_method_source, s.connection_id, s.cycle_count,
            s.commitment_cycles, s.next_period_start, s.next_due_date, s.started_at, s.canceled_at,
            c.customer_id, c.external_ref AS customer_external_ref, c.name AS customer_name,
            c.email AS customer_email
        FROM subscription s JOIN customer c ON c.customer_id = s.customer_id
        WHERE s.account_id = $1 AND c.account_id = $1 AND s.subscription_id = $2
        """,
        subscription_id,
    )
    return None if row is None else _subscription(row)


async def lock(tx: Tx, subscription_id: UUID) -> Subscription | None:
    """Lock a subscription against the billing run and other writers, and return it."""
    row = await tx.fetchrow(
        """
        SELECT s.subscription_id, s.external_ref, s.plan_id, s.plan_version_id, s.plan_version, s.customized,
            s.status, s.charge_day, s.payment_method, s.payment_method_source, s.connection_id, s.cycle_count,
            s.commitment_cycles, s.next_period_start, s.next_due_date, s.started_at, s.canceled_at,
            c.customer_id, c.external_ref AS customer_external_ref, c.name AS customer_name,
            c.email AS customer_email
        FROM subscription s JOIN customer c ON c.customer_id = s.customer_id
        WHERE s.account_id = $1 AND c.account_id = $1 AND s.subscription_id = $2 FOR NO KEY UPDATE OF s
        """,
        subscription_id,
    )
    return None if row is None else _subscription(row)


async def count(tx: Tx, wanted: SubscriptionFilter) -> int:
    """Return the number of subscriptions that match a filter."""
    rows = await tx.fetch_by_values(
        """
        SELECT count(*) AS total FROM subscription x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.status = $2)
            AND ($3::text IS NULL OR x.external_ref = $3) AND ($4::uuid IS NULL OR x.plan_id = $4)
            AND ($5::uuid IS NULL OR x.customer_id = $5)
            AND ($6::text IS NULL OR x.customer_id = (
                SELECT k.customer_id FROM customer k WHERE k.account_id = $1 AND k.external_ref = $6
            ))
        """,
        wanted.status,
        wanted.external_ref,
        wanted.plan_id,
        wanted.customer_id,
        wanted.customer_external_ref,
    )
    return rows[0]["total"]


async def page(tx: Tx, wanted: SubscriptionFilter, *, skip: int, limit: int) -> Sequence[Subscription]:
    """Return a page of the subscriptions that match a filter, newest first."""
    rows = await tx.fetch_by_values(
        """
        SELECT s.subscription_id, s.external_ref, s.plan_id, s.plan_version_id, s.plan_version, s.customized,
            s.status, s.charge_day, s.payment_method, s.payment_method_source, s.connection_id, s.cycle_count,
            s.commitment_cycles, s.next_period_start, s.next_due_date, s.started_at, s.canceled_at,
            c.customer_id, c.external_ref AS customer_external_ref, c.name AS customer_name,
            c.email AS customer_email
        FROM subscription s JOIN customer c ON c.customer_id = s.customer_id
        WHERE s.account_id = $1 AND c.account_id = $1 AND s.subscription_id IN (
            SELECT x.subscription_id FROM subscription x
            WHERE x.account_id = $1 AND ($2::text IS NULL OR x.status = $2)
                AND ($3::text IS NULL OR x.external_ref = $3) AND ($4::uuid IS NULL OR x.plan_id = $4)
                AND ($5::uuid IS NULL OR x.customer_id = $5)
                AND ($6::text IS NULL OR x.customer_id = (
                    SELECT k.customer_id FROM customer k WHERE k.account_id = $1 AND k.external_ref = $6
                ))
            ORDER BY x.subscription_id DESC OFFSET $7 LIMIT $8
        )
        ORDER BY s.subscription_id DESC
        """,
        wanted.status,
        wanted.external_ref,
        wanted.plan_id,
        wanted.customer_id,
        wanted.customer_external_ref,
        skip,
        limit,
    )
    return [_subscription(row) for row in rows]


async def cancel(tx: Tx, subscription_id: UUID, *, canceled_at: datetime) -> None:
    await tx.execute(
        """
        UPDATE subscription s SET status = 'canceled', canceled_at = $3
        WHERE s.account_id = $1 AND s.subscription_id = $2 AND s.status = 'active'
        """,
        subscription_id,
        canceled_at,
    )


async def pin_private_terms(tx: Tx, subscription: Subscription) -> None:
    """Set a subscription's private terms, from its next cycle on (D-22)."""
    await tx.execute(
        """
        UPDATE subscription s SET plan_version_id = $3, customized = true, payment_method = $4, commitment_cycles = $5
        WHERE s.account_id = $1 AND s.subscription_id = $2
        """,
        subscription.subscription_id,
        subscription.plan_version_id,
        subscription.payment_method,
        subscription.commitment_cycles,
    )


def _subscription(row: Row) -> Subscription:
    return Subscription(
        subscription_id=row["subscription_id"],
        external_ref=row["external_ref"],
        plan_id=row["plan_id"],
        plan_version_id=row["plan_version_id"],
        plan_version=row["plan_version"],
        customized=row["customized"],
        customer=Customer(
            row["customer_id"], row["customer_external_ref"], row["customer_name"], row["customer_email"]
        ),
        status=SubscriptionStatus(row["status"]),
        charge_day=row["charge_day"],
        payment_method=PaymentMethod(row["payment_method"]),
        payment_method_source=PaymentMethodSource(row["payment_method_source"]),
        connection_id=row["connection_id"],
        cycle_count=row["cycle_count"],
        commitment_cycles=row["commitment_cycles"],
        next_period_start=row["next_period_start"],
        next_due_date=row["next_due_date"],
        started_at=row["started_at"],
        canceled_at=row["canceled_at"],
    )
