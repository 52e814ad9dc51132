"""Plans and their immutable versions, with items and discount schedules."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.filters import PlanFilter
from fatura.domain.invoice import BilledProduct, BillingTerms
from fatura.domain.offer import Discount, OfferItem, Plan, Terms
from fatura.store.db import Row, Tx, record


async def insert(tx: Tx, plan_id: UUID, *, created_at: datetime) -> None:
    """Insert a plan whose current version is 1. The caller must insert this version with `insert_version`."""
    await tx.execute(
        "INSERT INTO plan (account_id, plan_id, current_version, created_at) VALUES ($1, $2, 1, $3)",
        plan_id,
        created_at,
    )


async def insert_version(
    tx: Tx, plan: Plan, terms: Terms, *, subscription_id: UUID | None, created_at: datetime
) -> None:
    """Insert a plan version without its items. With `subscription_id`, only that subscription uses it (D-22)."""
    await tx.execute(
        """
        INSERT INTO plan_version (account_id, plan_version_id, plan_id, version, subscription_id, name, period_months,
            default_payment_method, max_installments, commitment_cycles, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        """,
        plan.plan_version_id,
        plan.plan_id,
        plan.version,
        subscription_id,
        plan.name,
        terms.period_months,
        terms.default_payment_method,
        terms.max_installments,
        terms.commitment_cycles,
        created_at,
    )


async def insert_items(tx: Tx, plan_version_id: UUID, items: Sequence[OfferItem]) -> None:
    await tx.execute(
        """
        INSERT INTO plan_item (account_id, plan_version_id, position, product_id)
        SELECT o.account_id, $2, u.place - 1, u.product_id
        FROM account o CROSS JOIN unnest($3::uuid[]) WITH ORDINALITY AS u (product_id, place)
        WHERE o.account_id = $1
        """,
        plan_version_id,
        [item.product_id for item in items],
    )


async def count_billed_items(tx: Tx, plan_version_id: UUID) -> int:
    """Return the number of items of private terms, or 0 if these terms billed no invoice (D-245)."""
    return await tx.fetchval(
        """
        SELECT count(*) FROM plan_item i WHERE i.account_id = $1 AND i.plan_version_id = $2 AND EXISTS (
            SELECT FROM plan_version t JOIN invoice v ON v.subscription_id = t.subscription_id
            WHERE t.account_id = $1 AND v.account_id = $1 AND t.plan_version_id = $2 AND v.plan_version_id = $2
        )
        """,
        plan_version_id,
    )


async def delete_unbilled_items(tx: Tx, plan_version_id: UUID) -> None:
    """Delete the items and discounts of replaced private terms, unless these terms billed an invoice (D-245)."""
    await tx.allow_replaced_terms()
    await tx.execute(
        """
        DELETE FROM plan_discount d WHERE d.account_id = $1 AND d.plan_version_id = $2 AND NOT EXISTS (
            SELECT FROM plan_version t JOIN invoice v ON v.subscription_id = t.subscription_id
            WHERE t.account_id = $1 AND v.account_id = $1 AND t.plan_version_id = $2 AND v.plan_version_id = $2
        )
        """,
        plan_version_id,
    )
    await tx.execute(
        """
        DELETE FROM plan_item i WHERE i.account_id = $1 AND i.plan_version_id = $2 AND NOT EXISTS (
            SELECT FROM plan_version t JOIN invoice v ON v.subscription_id = t.subscription_id
            WHERE t.account_id = $1 AND v.account_id = $1 AND t.plan_version_id = $2 AND v.plan_version_id = $2
        )
        """,
        plan_version_id,
    )


async def insert_discounts(tx: Tx, plan_version_id: UUID, items: Sequence[OfferItem]) -> None:
    rules = [
        (position, priority, rule)
        for position, item in enumerate(items)
        for priority, rule in enumerate(item.discounts)
    ]
    if not rules:
        return
    await tx.execute(
        """
        INSERT INTO plan_discount (account_id, plan_version_id, position, priority, percent, from_cycle, to_cycle)
        SELECT o.account_id, $2, u.position, u.priority, u.percent, u.from_cycle, u.to_cycle
        FROM account o CROSS JOIN unnest($3::int2[], $4::int2[], $5::int2[], $6::int4[], $7::int4[])
            AS u (position, priority, percent, from_cycle, to_cycle)
        WHERE o.account_id = $1
        """,
        plan_version_id,
        [position for position, _, _ in rules],
        [priority for _, priority, _ in rules],
        [rule.percent for _, _, rule in rules],
        [rule.from_cycle for _, _, rule in rules],
        [rule.to_cycle for _, _, rule in rules],
    )


async def find(tx: Tx, plan_id: UUID) -> Plan | None:
    """Return a plan with its current version."""
    return next(iter(await _read(tx, [plan_id])), None)


async def lock(tx: Tx, plan_id: UUID) -> bool:
    """Lock a plan against other writers and new subscriptions; return whether it exists."""
    return bool(
        await tx.fetch(
            "SELECT FROM plan p WHERE p.account_id = $1 AND p.plan_id = $2 FOR NO KEY UPDATE", plan_id
        )
    )


async def lock_for_share(tx: Tx, plan_id: UUID) -> bool:
    """Lock a plan against archiving and new versions; return whether it exists."""
    return bool(
        await tx.fetch("SELECT FROM plan p WHERE p.account_id = $1 AND p.plan_id = $2 FOR SHARE", plan_id)
    )


async def find_version(tx: Tx, plan_version_id: UUID) -> Plan | None:
    """Return a plan with the terms of this version. The version may be private to a subscription (D-22)."""
    return await tx.fetchrow_as(
        Plan,
        """
        SELECT p.plan_id, v.plan_version_id, v.name, v.version, v.period_months, v.default_payment_method,
            v.max_installments, v.commitment_cycles, p.archived_at, p.created_at
        FROM plan p JOIN plan_version v ON v.plan_id = p.plan_id
        WHERE p.account_id = $1 AND v.account_id = $1 AND v.plan_version_id = $2
        """,
        plan_version_id,
    )


async def items(tx: Tx, plan_version_id: UUID) -> Sequence[OfferItem]:
    """Return a version's items, ordered by position."""
    rows = await tx.fetch(
        """
        SELECT i.position, i.product_id FROM plan_item i
        WHERE i.account_id = $1 AND i.plan_version_id = $2 ORDER BY i.position
        """,
        plan_version_id,
    )
    rules = await discounts(tx, [plan_version_id])
    return [OfferItem(row["product_id"], rules.get((plan_version_id, row["position"]), ())) for row in rows]


async def discounts(
    tx: Tx, plan_version_ids: Sequence[UUID]
) -> Mapping[tuple[UUID, int], tuple[Discount, ...]]:
    """Return the discounts of each item, in priority order. The keys are the version's id and the item's position."""
    rows = await tx.fetch(
        """
        SELECT d.plan_version_id, d.position, d.percent, d.from_cycle, d.to_cycle
        FROM plan_discount d WHERE d.account_id = $1 AND d.plan_version_id = ANY($2::uuid[])
        ORDER BY d.plan_version_id, d.position, d.priority
        """,
        plan_version_ids,
    )
    schedules: dict[tuple[UUID, int], tuple[Discount, ...]] = {}
    for row in rows:
        place = (row["plan_version_id"], row["position"])
        rule = Discount(row["percent"], row["from_cycle"], row["to_cycle"])
        schedules[place] = (*schedules.get(place, ()), rule)
    return schedules


async def count(tx: Tx, wanted: PlanFilter) -> int:
    rows = await tx.fetch_by_values(
        """
        SELECT count(*) AS total FROM plan x
        WHERE x.account_id = $1 AND ($2::boolean IS NULL OR (x.archived_at IS NOT NULL) = $2)
        """,
        wanted.archived,
    )
    return rows[0]["total"]


async def page(tx: Tx, wanted: PlanFilter, *, skip: int, limit: int) -> Sequence[Plan]:
    """Return a page of the plans that match a filter, with their current versions, newest first."""
    rows = await tx.fetch_by_values(
        """
        SELECT x.plan_id FROM plan x
        WHERE x.account_id = $1 AND ($2::boolean IS NULL OR (x.archived_at IS NOT NULL) = $2)
        ORDER BY x.plan_id DESC OFFSET $3 LIMIT $4
        """,
        wanted.archived,
        skip,
        limit,
    )
    return await _read(tx, [row["plan_id"] for row in rows])


async def publish_version(tx: Tx, plan_id: UUID, *, version: int) -> None:
    await tx.execute(
        "UPDATE plan p SET current_version = $3 WHERE p.account_id = $1 AND p.plan_id = $2", plan_id, version
    )


async def archive(tx: Tx, plan_id: UUID, *, archived_at: datetime) -> None:
    """Archive a plan; if it is archived already, change nothing."""
    await tx.execute(
        "UPDATE plan p SET archived_at = coalesce(p.archived_at, $3) WHERE p.account_id = $1 AND p.plan_id = $2",
        plan_id,
        archived_at,
    )


async def billing_terms(tx: Tx, plan_version_ids: Iterable[UUID]) -> Mapping[UUID, BillingTerms]:
    """Return versions by id, with the data for building invoices: terms, and the products' current names and prices."""
    wanted = list(plan_version_ids)
    rows = await tx.fetch(
        """
        SELECT v.plan_version_id, v.period_months, v.max_installments, i.position, i.product_id,
            p.name AS product_name, p.pricing_mode, p.monthly_price_cents
        FROM plan_version v
        JOIN plan_item i ON i.plan_version_id = v.plan_version_id
        JOIN product p ON p.product_id = i.product_id
        WHERE v.account_id = $1 AND i.account_id = $1 AND p.account_id = $1 AND v.plan_version_id = ANY($2::uuid[])
        ORDER BY v.plan_version_id, i.position
        """,
        wanted,
    )
    rules = await discounts(tx, wanted)
    products: dict[UUID, list[BilledProduct]] = {}
    heads: dict[UUID, Row] = {}
    for row in rows:
        version_id = row["plan_version_id"]
        heads[version_id] = row
        products.setdefault(version_id, []).append(
            record(BilledProduct, row, discounts=rules.get((version_id, row["position"]), ()))
        )
    return {
        version_id: BillingTerms(
            version_id, head["period_months"], head["max_installments"], tuple(products[version_id])
        )
        for version_id, head in heads.items()
    }


async def _read(tx: Tx, plan_ids: Sequence[UUID]) -> Sequence[Plan]:
    """Return the plans with these ids, with their current versions, newest first."""
    return await tx.fetch_as(
        Plan,
        """
        SELECT p.plan_id, v.plan_version_id, v.name, v.version, v.period_months, v.default_payment_method,
            v.max_installments, v.commitment_cycles, p.archived_at, p.created_at
        FROM plan p JOIN plan_version v ON v.plan_id = p.plan_id AND v.version = p.current_version
        WHERE p.account_id = $1 AND v.account_id = $1 AND v.subscription_id IS NULL AND p.plan_id = ANY($2::uuid[])
        ORDER BY p.plan_id DESC
        """,
        plan_ids,
    )
