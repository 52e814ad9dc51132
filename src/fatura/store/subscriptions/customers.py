"""Queries for customers, which are unique by externalRef (D-15)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.filters import CustomerFilter
from fatura.domain.subscription import Customer, CustomerProfile
from fatura.store.db import Row, Tx

DOCUMENT_PLACE = "customer.document_sealed"


async def insert_unless_known(tx: Tx, customer: Customer, *, created_at: datetime) -> bool:
    """Insert a customer unless the externalRef exists; return whether it is new. Waits for a concurrent insert."""
    touched = await tx.execute(
        """
        INSERT INTO customer (account_id, customer_id, external_ref, name, email, created_at)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (account_id, external_ref) DO NOTHING
        """,
        customer.customer_id,
        customer.external_ref,
        customer.name,
        customer.email,
        created_at,
    )
    return touched == 1


async def find_by_ref(tx: Tx, external_ref: str) -> Customer | None:
    row = await tx.fetchrow(
        """
        SELECT c.customer_id, c.external_ref, c.name, c.email
        FROM customer c WHERE c.account_id = $1 AND c.external_ref = $2
        """,
        external_ref,
    )
    return None if row is None else Customer(**row)


async def fill_in_document(tx: Tx, customer_id: UUID, *, sealed: bytes) -> None:
    """Store an encrypted tax document unless the customer has one (D-15)."""
    await tx.execute(
        """
        UPDATE customer c SET document_sealed = coalesce(c.document_sealed, $3)
        WHERE c.account_id = $1 AND c.customer_id = $2
        """,
        customer_id,
        sealed,
    )


async def find(tx: Tx, customer_id: UUID) -> CustomerProfile | None:
    row = await tx.fetchrow(
        """
        SELECT c.customer_id, c.external_ref, c.name, c.email, c.created_at,
            c.document_sealed IS NOT NULL AS has_document
        FROM customer c WHERE c.account_id = $1 AND c.customer_id = $2
        """,
        customer_id,
    )
    return None if row is None else _profile(row)


async def lock(tx: Tx, customer_id: UUID) -> CustomerProfile | None:
    row = await tx.fetchrow(
        """
        SELECT c.customer_id, c.external_ref, c.name, c.email, c.created_at,
            c.document_sealed IS NOT NULL AS has_document
        FROM customer c WHERE c.account_id = $1 AND c.customer_id = $2 FOR NO KEY UPDATE
        """,
        customer_id,
    )
    return None if row is None else _profile(row)


async def update(tx: Tx, customer: Customer) -> None:
    await tx.execute(
        "UPDATE customer c SET name = $3, email = $4 WHERE c.account_id = $1 AND c.customer_id = $2",
        customer.customer_id,
        customer.name,
        customer.email,
    )


async def replace_document(tx: Tx, customer_id: UUID, *, sealed: bytes | None) -> None:
    """Store another encrypted tax document, or none."""
    await tx.execute(
        "UPDATE customer c SET document_sealed = $3 WHERE c.account_id = $1 AND c.customer_id = $2",
        customer_id,
        sealed,
    )


async def count(tx: Tx, wanted: CustomerFilter) -> int:
    """Return the number of customers that match a filter."""
    rows = await tx.fetch_by_values(
        """
        SELECT count(*) AS total FROM customer x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.external_ref = $2)
        """,
        wanted.external_ref,
    )
    return rows[0]["total"]


async def page(tx: Tx, wanted: CustomerFilter, *, skip: int, limit: int) -> Sequence[CustomerProfile]:
    """Return a page of the customers that match a filter, newest first."""
    rows = await tx.fetch_by_values(
        """
        SELECT c.customer_id, c.external_ref, c.name, c.email, c.created_at,
            c.document_sealed IS NOT NULL AS has_document
        FROM customer c
        WHERE c.account_id = $1 AND c.customer_id IN (
            SELECT x.customer_id FROM customer x
            WHERE x.account_id = $1 AND ($2::text IS NULL OR x.external_ref = $2)
            ORDER BY x.customer_id DESC OFFSET $3 LIMIT $4
        )
        ORDER BY c.customer_id DESC
        """,
        wanted.external_ref,
        skip,
        limit,
    )
    return [_profile(row) for row in rows]


def _profile(row: Row) -> CustomerProfile:
    customer = Customer(row["customer_id"], row["external_ref"], row["name"], row["email"])
    return CustomerProfile(customer, has_document=row["has_document"], created_at=row["created_at"])
