"""Queries for products."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from fatura.domain.filters import ProductFilter
from fatura.domain.offer import ProductFacts
from fatura.domain.product import Product
from fatura.store.db import Tx


async def insert(tx: Tx, product: Product) -> None:
    await tx.execute(
        """
        INSERT INTO product (account_id, product_id, name, description, external_ref, pricing_mode,
            monthly_price_cents, endpoint_url, cap_cents, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        """,
        product.product_id,
        product.name,
        product.description,
        product.external_ref,
        product.pricing_mode,
        product.monthly_price_cents,
        product.endpoint_url,
        product.cap_cents,
        product.created_at,
    )


async def find(tx: Tx, product_id: UUID) -> Product | None:
    return next(iter(await _read(tx, [product_id])), None)


async def lock(tx: Tx, product_id: UUID) -> Product | None:
    """Lock a product against other writers and new plans, and return it."""
    await tx.execute(
        "SELECT FROM product p WHERE p.account_id = $1 AND p.product_id = $2 FOR NO KEY UPDATE", product_id
    )
    return await find(tx, product_id)


async def update(tx: Tx, product: Product) -> None:
    """Write a product's mutable columns."""
    await tx.execute(
        """
        UPDATE product p SET name = $3, description = $4, monthly_price_cents = $5, endpoint_url = $6, cap_cents = $7,
            archived_at = $8
        WHERE p.account_id = $1 AND p.product_id = $2
        """,
        product.product_id,
        product.name,
        product.description,
        product.monthly_price_cents,
        product.endpoint_url,
        product.cap_cents,
        product.archived_at,
    )


async def count(tx: Tx, wanted: ProductFilter) -> int:
    rows = await tx.fetch_by_values(
        """
        SELECT count(*) AS total FROM product x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.external_ref = $2)
            AND ($3::boolean IS NULL OR (x.archived_at IS NOT NULL) = $3)
        """,
        wanted.external_ref,
        wanted.archived,
    )
    return rows[0]["total"]


async def page(tx: Tx, wanted: ProductFilter, *, skip: int, limit: int) -> Sequence[Product]:
    """Return a page of the products that match a filter, newest first."""
    rows = await tx.fetch_by_values(
        """
        SELECT x.product_id FROM product x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.external_ref = $2)
            AND ($3::boolean IS NULL OR (x.archived_at IS NOT NULL) = $3)
        ORDER BY x.product_id DESC OFFSET $4 LIMIT $5
        """,
        wanted.external_ref,
        wanted.archived,
        skip,
        limit,
    )
    return await _read(tx, [row["product_id"] for row in rows])


async def lock_facts(tx: Tx, product_ids: Sequence[UUID]) -> Mapping[UUID, ProductFacts]:
    """Lock products against archiving, in id order; return the data that `check_products` needs."""
    found = await tx.fetch_as(
        ProductFacts,
        """
        SELECT p.product_id, p.pricing_mode, p.archived_at
        FROM product p WHERE p.account_id = $1 AND p.product_id = ANY($2::uuid[])
        ORDER BY p.product_id FOR SHARE
        """,
        product_ids,
    )
    return {facts.product_id: facts for facts in found}


async def _read(tx: Tx, product_ids: Sequence[UUID]) -> Sequence[Product]:
    """Return the products with these ids, newest first."""
    return await tx.fetch_as(
        Product,
        """
        SELECT p.product_id, p.name, p.description, p.external_ref, p.pricing_mode, p.monthly_price_cents,
            p.endpoint_url, p.cap_cents, p.archived_at, p.created_at
        FROM product p WHERE p.account_id = $1 AND p.product_id = ANY($2::uuid[])
        ORDER BY p.product_id DESC
        """,
        product_ids,
    )
