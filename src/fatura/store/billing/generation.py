"""SQL of the billing run, which bills subscriptions in batches (D-28)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.invoice import InvoiceDraft, PricingStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.subscription import Customer
from fatura.store.billing.invoices import customer_of
from fatura.store.db import Row, Tx, check_rows
from fatura.store.pricing import price_pulls


@dataclass(frozen=True, slots=True)
class DueSubscription:
    """A locked subscription, with the data that the invoice of its next cycle needs."""

    subscription_id: UUID
    external_ref: str | None
    plan_version_id: UUID
    customer: Customer
    connection_id: UUID
    payment_method: PaymentMethod
    charge_day: int
    cycle_count: int
    next_period_start: date
    next_due_date: date

    @property
    def cycle(self) -> int:
        return self.cycle_count + 1


async def claim_due(tx: Tx, *, now: datetime, limit: int) -> Sequence[DueSubscription]:
    """Lock and return due subscriptions.

    Skip subscriptions that another run has locked, and subscriptions that were put off after a failure.
    """
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, s.external_ref, s.plan_version_id, s.connection_id, s.payment_method, s.charge_day,
            s.cycle_count, s.next_period_start, s.next_due_date, c.customer_id,
            c.external_ref AS customer_external_ref, c.name AS customer_name, c.email AS customer_email
        FROM subscription s JOIN customer c ON c.customer_id = s.customer_id
        WHERE s.account_id = $1 AND c.account_id = $1 AND s.status = 'active' AND s.put_off_until IS NULL
            AND s.generate_at <= $2
        ORDER BY s.generate_at LIMIT $3
        FOR NO KEY UPDATE OF s SKIP LOCKED
        """,
        now,
        limit,
    )
    return [_due(row) for row in rows]


async def due_ids(tx: Tx, *, now: datetime, limit: int) -> Sequence[UUID]:
    rows = await tx.fetch(
        """
        SELECT s.subscription_id FROM subscription s
        WHERE s.account_id = $1 AND s.status = 'active' AND s.put_off_until IS NULL AND s.generate_at <= $2
        ORDER BY s.generate_at LIMIT $3
        """,
        now,
        limit,
    )
    return [row["subscription_id"] for row in rows]


async def retry_ids(tx: Tx, *, now: datetime, limit: int) -> Sequence[UUID]:
    """Return the ids of the subscriptions that were put off after a failure and whose next try is due."""
    rows = await tx.fetch(
        """
        SELECT s.subscription_id FROM subscription s
        WHERE s.account_id = $1 AND s.status = 'active' AND s.put_off_until <= $2
        ORDER BY s.put_off_until LIMIT $3
        """,
        now,
        limit,
    )
    return [row["subscription_id"] for row in rows]


async def claim_one(tx: Tx, subscription_id: UUID, *, now: datetime) -> Sequence[DueSubscription]:
    """Lock one subscription and return it. Return an empty list if it is not due or another run has locked it."""
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, s.external_ref, s.plan_version_id, s.connection_id, s.payment_method, s.charge_day,
            s.cycle_count, s.next_period_start, s.next_due_date, c.customer_id,
            c.external_ref AS customer_external_ref, c.name AS customer_name, c.email AS customer_email
        FROM subscription s JOIN customer c ON c.customer_id = s.customer_id
        WHERE s.account_id = $1 AND c.account_id = $1 AND s.subscription_id = $2 AND s.status = 'active'
            AND s.generate_at <= $3 AND (s.put_off_until IS NULL OR s.put_off_until <= $3)
        FOR NO KEY UPDATE OF s SKIP LOCKED
        """,
        subscription_id,
        now,
    )
    return [_due(row) for row in rows]


def _due(row: Row) -> DueSubscription:
    """Build the record field by field, which takes a fifth of the time of `record`."""
    return DueSubscription(
        row["subscription_id"],
        row["external_ref"],
        row["plan_version_id"],
        customer_of(row),
        row["connection_id"],
        PaymentMethod(row["payment_method"]),
        row["charge_day"],
        row["cycle_count"],
        row["next_period_start"],
        row["next_due_date"],
    )


@dataclass(frozen=True, slots=True)
class NewInvoice:
    """One invoice of a batch. `draft_index` is the position of its content in the batch's list of drafts."""

    invoice_id: UUID
    connection_id: UUID
    item_ids: Sequence[UUID]
    due: DueSubscription
    period_end: date
    draft_index: int
    following_period_start: date
    following_generate_at: datetime


async def advance_subscriptions(tx: Tx, batch: Sequence[NewInvoice]) -> None:
    touched = await tx.execute(
        """
        UPDATE subscription s SET cycle_count = s.cycle_count + 1, next_period_start = u.start, next_due_date = u.start,
            generate_at = u.generate_at, failures = 0, put_off_until = NULL,
            failure_emitted = false
        FROM unnest($2::uuid[], $3::date[], $4::timestamptz[]) AS u (subscription_id, start, generate_at)
        WHERE s.account_id = $1 AND s.subscription_id = u.subscription_id
        """,
        [new.due.subscription_id for new in batch],
        [new.following_period_start for new in batch],
        [new.following_generate_at for new in batch],
    )
    check_rows(touched, len(batch))


async def insert_invoices(
    tx: Tx, batch: Sequence[NewInvoice], drafts: Sequence[InvoiceDraft], *, now: datetime
) -> None:
    """Insert a batch of invoices. Invoices with equal content share a draft, and each draft is passed to SQL once."""
    touched = await tx.execute(
        """
        INSERT INTO invoice (account_id, invoice_id, subscription_id, plan_version_id, connection_id, cycle, status,
            period_start, period_end, due_date, payment_method, installments, total_cents, currency, paid_at,
            created_at, next_attempt_at)
        SELECT o.account_id, u.invoice_id, u.subscription_id, u.plan_version_id, u.connection_id, t.cycle, t.status,
            u.period_start, u.period_end, u.due_date, t.payment_method, t.installments, t.total_cents, o.currency,
            CASE WHEN t.status = 'paid' THEN $2::timestamptz END, $2,
            CASE WHEN t.status = 'ready' THEN $2::timestamptz END
        FROM account o
        CROSS JOIN unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::date[], $8::date[], $9::date[],
                $10::int4[])
            AS u (invoice_id, subscription_id, plan_version_id, connection_id, period_start, period_end, due_date,
                draft)
        JOIN unnest($11::int4[], $12::text[], $13::text[], $14::int2[], $15::int8[])
            WITH ORDINALITY AS t (cycle, status, payment_method, installments, total_cents, draft)
            ON t.draft = u.draft + 1
        WHERE o.account_id = $1
        """,
        now,
        [new.invoice_id for new in batch],
        [new.due.subscription_id for new in batch],
        [new.due.plan_version_id for new in batch],
        [new.connection_id for new in batch],
        [new.due.next_period_start for new in batch],
        [new.period_end for new in batch],
        [new.due.next_due_date for new in batch],
        [new.draft_index for new in batch],
        [draft.cycle for draft in drafts],
        [draft.status for draft in drafts],
        [draft.payment_method for draft in drafts],
        [draft.installments for draft in drafts],
        [draft.total_cents for draft in drafts],
    )
    check_rows(touched, len(batch))


async def insert_items(tx: Tx, batch: Sequence[NewInvoice], drafts: Sequence[InvoiceDraft]) -> None:
    """Insert the items of a batch of invoices.

    Invoices with equal content share a draft. The content of a draft's items is passed to SQL once.
    """
    shared = [
        (place, position, item)
        for place, draft in enumerate(drafts)
        for position, item in enumerate(draft.items)
    ]
    touched = await tx.execute(
        """
        INSERT INTO invoice_item (account_id, invoice_id, position, item_id, product_id, product_name, pricing_source,
            pricing_status, months, monthly_price_cents, discount_percent, amount_cents, currency)
        SELECT o.account_id, u.invoice_id, u.position, u.item_id, t.product_id, t.product_name, t.pricing_source,
            t.pricing_status, t.months, t.monthly_price_cents, t.discount_percent, t.amount_cents, o.currency
        FROM account o
        CROSS JOIN unnest($2::uuid[], $3::uuid[], $4::int4[], $5::int2[]) AS u (item_id, invoice_id, draft, position)
        JOIN unnest($6::int4[], $7::int2[], $8::uuid[], $9::text[], $10::text[], $11::text[], $12::int2[], $13::int8[],
                $14::int2[], $15::int8[])
            AS t (draft, position, product_id, product_name, pricing_source, pricing_status, months,
                monthly_price_cents, discount_percent, amount_cents)
            ON t.draft = u.draft AND t.position = u.position
        WHERE o.account_id = $1
        """,
        [item_id for new in batch for item_id in new.item_ids],
        [new.invoice_id for new in batch for _ in new.item_ids],
        [new.draft_index for new in batch for _ in new.item_ids],
        [position for new in batch for position in range(len(new.item_ids))],
        [place for place, _, _ in shared],
        [position for _, position, _ in shared],
        [item.product_id for _, _, item in shared],
        [item.product_name for _, _, item in shared],
        [item.pricing_source for _, _, item in shared],
        [item.pricing_status for _, _, item in shared],
        [item.months for _, _, item in shared],
        [item.monthly_price_cents for _, _, item in shared],
        [item.discount_percent for _, _, item in shared],
        [item.amount_cents for _, _, item in shared],
    )
    check_rows(touched, sum(len(new.item_ids) for new in batch))


async def insert_price_pulls(
    tx: Tx, batch: Sequence[NewInvoice], drafts: Sequence[InvoiceDraft], *, now: datetime
) -> None:
    """Schedule the first price calls of a batch's pending items for the instant `now` (D-24)."""
    pending = [
        [place for place, item in enumerate(draft.items) if item.pricing_status is PricingStatus.PENDING]
        for draft in drafts
    ]
    keys = [(new.invoice_id, position) for new in batch for position in pending[new.draft_index]]
    if keys:
        await price_pulls.insert(tx, keys, due_at=now)


async def put_off(tx: Tx, subscription_id: UUID, *, now: datetime, until: datetime) -> bool:
    """Put off a due subscription until `until`. Return whether the caller must emit `subscription.billing_failed`.

    The event is emitted at most once between two invoices of a subscription. If the subscription is no longer due, for
    example because another worker billed it, change nothing and return False.
    """
    is_emitted = await tx.fetchval(
        """
        UPDATE subscription s SET failures = s.failures + 1, put_off_until = $3
        WHERE s.account_id = $1 AND s.subscription_id = $2 AND s.status = 'active' AND s.generate_at <= $4
            AND (s.put_off_until IS NULL OR s.put_off_until <= $4)
        RETURNING s.failure_emitted
        """,
        subscription_id,
        until,
        now,
    )
    return is_emitted is False


async def note_failure_emitted(tx: Tx, subscription_ids: Sequence[UUID]) -> None:
    await tx.execute(
        """
        UPDATE subscription s SET failure_emitted = true
        WHERE s.account_id = $1 AND s.subscription_id = ANY($2::uuid[])
        """,
        subscription_ids,
    )


async def product_refs(tx: Tx, product_ids: Sequence[UUID]) -> dict[UUID, str | None]:
    """Return the merchant's own ids (`externalRef`) of products, by product id."""
    rows = await tx.fetch(
        "SELECT p.product_id, p.external_ref FROM product p WHERE p.account_id = $1 AND p.product_id = ANY($2::uuid[])",
        product_ids,
    )
    return {row["product_id"]: row["external_ref"] for row in rows}
