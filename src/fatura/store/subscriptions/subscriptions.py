"""Queries for subscriptions with their customers; the billing run's queries are in `store.billing.generation`."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.filters import SubscriptionFilter
from fatura.domain.subscription import Subscription
from fatura.store.billing.invoices import customer_of
from fatura.store.db import Tx, record


async def insert(tx: Tx, subscription: Subscription, *, generate_at: datetime) -> None:
    """Insert a subscription; `generate_at` is when its first cycle becomes due for generation."""
    await tx.execute(
        """
        INSERT INTO subscription (account_id, subscription_id, external_ref, plan_id, plan_version_id, plan_version,
            customized, customer_id, status, charge_day, payment_method, payment_method_source, connection_id,
            start_cycle, cycle_count, commitment_cycles, next_period_start, next_due_date, generate_at, started_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
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
        subscription.start_cycle,
        subscription.cycle_count,
        subscription.commitment_cycles,
        subscription.next_period_start,
        subscription.next_due_date,
        generate_at,
        subscription.started_at,
    )


async def find(tx: Tx, subscription_id: UUID) -> Subscription | None:
    return next(iter(await find_all(tx, [subscription_id])), None)


async def lock(tx: Tx, subscription_id: UUID) -> Subscription | None:
    """Lock a subscription against the billing run and other writers, and return it."""
    await tx.execute(
        "SELECT FROM subscription s WHERE s.account_id = $1 AND s.subscription_id = $2 FOR NO KEY UPDATE",
        subscription_id,
    )
    return await find(tx, subscription_id)


async def count(tx: Tx, wanted: SubscriptionFilter) -> int:
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
        SELECT x.subscription_id FROM subscription x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.status = $2)
            AND ($3::text IS NULL OR x.external_ref = $3) AND ($4::uuid IS NULL OR x.plan_id = $4)
            AND ($5::uuid IS NULL OR x.customer_id = $5)
            AND ($6::text IS NULL OR x.customer_id = (
                SELECT k.customer_id FROM customer k WHERE k.account_id = $1 AND k.external_ref = $6
            ))
        ORDER BY x.subscription_id DESC OFFSET $7 LIMIT $8
        """,
        wanted.status,
        wanted.external_ref,
        wanted.plan_id,
        wanted.customer_id,
        wanted.customer_external_ref,
        skip,
        limit,
    )
    return await find_all(tx, [row["subscription_id"] for row in rows])


async def active_of(tx: Tx, customer_id: UUID, *, plan_id: UUID, limit: int) -> Sequence[UUID]:
    """Return up to `limit` active subscriptions that a customer has to a plan, newest first.

    At most 1,000 subscriptions of the customer are searched.
    """
    rows = await tx.fetch(
        """
        WITH held AS MATERIALIZED (
            SELECT s.subscription_id, s.plan_id, s.status FROM subscription s
            WHERE s.account_id = $1 AND s.customer_id = $2 LIMIT 1000
        )
        SELECT h.subscription_id FROM held h WHERE h.plan_id = $3 AND h.status = 'active'
        ORDER BY h.subscription_id DESC LIMIT $4
        """,
        customer_id,
        plan_id,
        limit,
    )
    return [row["subscription_id"] for row in rows]


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
    """Set a subscription's private terms, which apply from its next cycle on (D-22)."""
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


async def find_all(tx: Tx, subscription_ids: Sequence[UUID]) -> Sequence[Subscription]:
    """Return the subscriptions with these ids, newest first."""
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, s.external_ref, s.plan_id, s.plan_version_id, s.plan_version, s.customized,
            s.status, s.charge_day, s.payment_method, s.payment_method_source, s.connection_id, s.start_cycle,
            s.cycle_count, s.commitment_cycles, s.next_period_start, s.next_due_date, s.started_at, s.canceled_at,
            c.customer_id, c.external_ref AS customer_external_ref, c.name AS customer_name,
            c.email AS customer_email
        FROM subscription s JOIN customer c ON c.customer_id = s.customer_id
        WHERE s.account_id = $1 AND c.account_id = $1
            AND s.subscription_id = ANY($2::uuid[])
        ORDER BY s.subscription_id DESC
        """,
        subscription_ids,
    )
    return [record(Subscription, row, customer=customer_of(row)) for row in rows]
