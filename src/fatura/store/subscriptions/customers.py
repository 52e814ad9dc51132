"""Queries for customers, which are unique by externalRef (D-15)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.customer_search import document_key, email_key, name_key
from fatura.domain.filters import CustomerFilter
from fatura.domain.subscription import Customer, CustomerProfile
from fatura.store.db import Tx, record
from fatura.store.vault import Vault

DOCUMENT_PLACE = "customer.document_sealed"
_HASH_PLACE = "customer.document_hash"


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """An encrypted tax document and the keyed hash by which it is found (D-130)."""

    sealed: bytes
    hash: bytes


def document_hashes(vault: Vault, document: str, *, account_id: UUID) -> Sequence[bytes]:
    """Return the hashes that may be stored for a document: one for each key, in the order of the key ring."""
    return vault.keyed_hashes(document_key(document).encode(), place=_HASH_PLACE, account_id=account_id)


async def insert_unless_known(tx: Tx, customer: Customer, *, created_at: datetime) -> bool:
    """Insert a customer and return True. Return False if a customer with this externalRef is stored already.

    Waits for a concurrent transaction that inserts the same externalRef.
    """
    assert customer.email is not None, "a new customer has an e-mail"
    touched = await tx.execute(
        """
        INSERT INTO customer (account_id, customer_id, external_ref, name, name_key, email, email_key, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (account_id, external_ref) DO NOTHING
        """,
        customer.customer_id,
        customer.external_ref,
        customer.name,
        name_key(customer.name),
        customer.email,
        email_key(customer.email),
        created_at,
    )
    return touched == 1


async def find_to_subscribe(tx: Tx, external_ref: str) -> Customer | None:
    """Return the customer with this externalRef, and keep it from being erased before this transaction ends."""
    return await tx.fetchrow_as(
        Customer,
        """
        SELECT c.customer_id, c.external_ref, c.name, c.email
        FROM customer c WHERE c.account_id = $1 AND c.external_ref = $2 FOR KEY SHARE
        """,
        external_ref,
    )


async def fill_in_document(tx: Tx, customer_id: UUID, document: StoredDocument) -> None:
    """Store an encrypted tax document unless the customer has one (D-15)."""
    await tx.execute(
        """
        UPDATE customer c SET document_sealed = $3, document_hash = $4
        WHERE c.account_id = $1 AND c.customer_id = $2 AND c.document_sealed IS NULL
        """,
        customer_id,
        document.sealed,
        document.hash,
    )


async def find(tx: Tx, customer_id: UUID) -> CustomerProfile | None:
    return next(iter(await _read(tx, [customer_id])), None)


async def lock(tx: Tx, customer_id: UUID) -> CustomerProfile | None:
    await tx.execute(
        "SELECT FROM customer c WHERE c.account_id = $1 AND c.customer_id = $2 FOR NO KEY UPDATE", customer_id
    )
    return await find(tx, customer_id)


async def lock_to_erase(tx: Tx, customer_id: UUID) -> CustomerProfile | None:
    """Lock a customer. Wait for transactions that subscribe or change the customer, and make later ones wait."""
    await tx.execute(
        "SELECT FROM customer c WHERE c.account_id = $1 AND c.customer_id = $2 FOR UPDATE", customer_id
    )
    return await find(tx, customer_id)


async def erase(tx: Tx, customer: Customer) -> None:
    """Overwrite the stored data of a customer with `customer`, the result of `Customer.erased`."""
    await tx.execute(
        """
        UPDATE customer c SET external_ref = $3, name = $4, name_key = $5, email = NULL, email_key = NULL,
            document_sealed = NULL, document_hash = NULL
        WHERE c.account_id = $1 AND c.customer_id = $2
        """,
        customer.customer_id,
        customer.external_ref,
        customer.name,
        name_key(customer.name),
    )


async def set_erased_at(tx: Tx, customer_id: UUID, *, erased_at: datetime) -> None:
    await tx.execute(
        "UPDATE customer c SET erased_at = $3 WHERE c.account_id = $1 AND c.customer_id = $2",
        customer_id,
        erased_at,
    )


async def update(tx: Tx, customer: Customer) -> None:
    assert customer.email is not None, "an erased customer is not changed"
    await tx.execute(
        """
        UPDATE customer c SET name = $3, name_key = $4, email = $5, email_key = $6
        WHERE c.account_id = $1 AND c.customer_id = $2
        """,
        customer.customer_id,
        customer.name,
        name_key(customer.name),
        customer.email,
        email_key(customer.email),
    )


async def replace_document(tx: Tx, customer_id: UUID, document: StoredDocument | None) -> None:
    """Replace the encrypted tax document; None removes it."""
    await tx.execute(
        """
        UPDATE customer c SET document_sealed = $3, document_hash = $4
        WHERE c.account_id = $1 AND c.customer_id = $2
        """,
        customer_id,
        None if document is None else document.sealed,
        None if document is None else document.hash,
    )


async def count(tx: Tx, wanted: CustomerFilter, *, hashes: Sequence[bytes] | None) -> int:
    """Return how many customers match a filter; `hashes` are the possible hashes of the filter's document."""
    rows = await tx.fetch_by_values(
        """
        SELECT count(*) AS total FROM customer x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.external_ref = $2)
            AND ($3::text IS NULL OR x.email_key = $3) AND ($4::text IS NULL OR starts_with(x.name_key, $4))
            AND ($5::bytea[] IS NULL OR x.document_hash = ANY($5))
        """,
        *_values(wanted, hashes),
    )
    return rows[0]["total"]


async def page(
    tx: Tx, wanted: CustomerFilter, *, hashes: Sequence[bytes] | None, skip: int, limit: int
) -> Sequence[CustomerProfile]:
    """Return a page of the customers that match a filter, newest first. For `hashes`, see `count`."""
    rows = await tx.fetch_by_values(
        """
        SELECT x.customer_id FROM customer x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.external_ref = $2)
            AND ($3::text IS NULL OR x.email_key = $3) AND ($4::text IS NULL OR starts_with(x.name_key, $4))
            AND ($5::bytea[] IS NULL OR x.document_hash = ANY($5))
        ORDER BY x.customer_id DESC OFFSET $6 LIMIT $7
        """,
        *_values(wanted, hashes),
        skip,
        limit,
    )
    return await _read(tx, [row["customer_id"] for row in rows])


def _values(wanted: CustomerFilter, hashes: Sequence[bytes] | None) -> Sequence[object]:
    """Return the filter's values as the parameters `$2` to `$5` of `count` and `page`."""
    return (
        wanted.external_ref,
        None if wanted.email is None else email_key(wanted.email),
        None if wanted.name is None else name_key(wanted.name),
        hashes,
    )


async def _read(tx: Tx, customer_ids: Sequence[UUID]) -> Sequence[CustomerProfile]:
    """Return the customers with these ids, newest first."""
    rows = await tx.fetch(
        """
        SELECT c.customer_id, c.external_ref, c.name, c.email, c.created_at, c.erased_at,
            c.document_sealed IS NOT NULL AS has_document
        FROM customer c
        WHERE c.account_id = $1 AND c.customer_id = ANY($2::uuid[])
        ORDER BY c.customer_id DESC
        """,
        customer_ids,
    )
    return [record(CustomerProfile, row, customer=record(Customer, row)) for row in rows]
