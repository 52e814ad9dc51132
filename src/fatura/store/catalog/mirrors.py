"""The copies of products in gateways' catalogs, one row per product and connection (spec 2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.store import leases
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class ClaimedMirror:
    """A leased row: a product that must be copied to the catalog of a connection."""

    connection_id: UUID
    product_id: UUID
    name: str
    description: str | None
    failures: int
    next_attempt_at: datetime


async def enqueue_product(tx: Tx, product_id: UUID, *, now: datetime) -> int:
    """Schedule copying a product to each active connection with a catalog; return the number of connections."""
    return await tx.execute(
        """
        INSERT INTO product_mirror (account_id, connection_id, product_id, next_attempt_at, failures)
        SELECT g.account_id, g.connection_id, $2, $3, 0 FROM gateway_connection g
        WHERE g.account_id = $1 AND g.active AND g.product_catalog
        ON CONFLICT (account_id, connection_id, product_id) DO UPDATE SET next_attempt_at = EXCLUDED.next_attempt_at
        """,
        product_id,
        now,
    )


async def enqueue_catalog(tx: Tx, connection_id: UUID, *, now: datetime) -> int:
    """Schedule copying all products that a connection's catalog lacks; return the number of products."""
    return await tx.execute(
        """
        INSERT INTO product_mirror AS m (account_id, connection_id, product_id, next_attempt_at, failures)
        SELECT p.account_id, $2, p.product_id, $3, 0 FROM product p WHERE p.account_id = $1
        ON CONFLICT (account_id, connection_id, product_id) DO UPDATE SET next_attempt_at = EXCLUDED.next_attempt_at
        WHERE m.account_id = $1 AND m.mirrored_at IS NULL
        """,
        connection_id,
        now,
    )


async def claim(
    tx: Tx, *, now: datetime, real_now: datetime, lease_until: datetime, limit: int
) -> Sequence[tuple[UUID, UUID]]:
    """Lease up to `limit` rows that are due; return their (connection, product) pairs."""
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.connection_id, x.product_id FROM product_mirror x
            WHERE x.account_id = $1 AND x.next_attempt_at <= $2
                AND (x.lease_until IS NULL OR x.lease_until <= $3 OR x.lease_until > $6)
            ORDER BY x.next_attempt_at LIMIT $5
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE product_mirror m SET lease_until = $4 FROM due
        WHERE m.account_id = $1 AND m.connection_id = due.connection_id AND m.product_id = due.product_id
        RETURNING m.connection_id, m.product_id
        """,
        now,
        real_now,
        lease_until,
        limit,
        leases.horizon(real_now),
    )
    return [(row["connection_id"], row["product_id"]) for row in rows]


async def put_off(tx: Tx, key: tuple[UUID, UUID], *, until: datetime) -> None:
    """End the lease of a row, and make the row due at `until`."""
    await tx.execute(
        """
        UPDATE product_mirror m SET lease_until = NULL, next_attempt_at = $4
        WHERE m.account_id = $1 AND m.connection_id = $2 AND m.product_id = $3
        """,
        *key,
        until,
    )


async def claimed(tx: Tx, keys: Sequence[tuple[UUID, UUID]]) -> Sequence[ClaimedMirror]:
    """Return the leased rows of these (connection, product) pairs, with the products' current names."""
    return await tx.fetch_as(
        ClaimedMirror,
        """
        SELECT m.connection_id, m.product_id, p.name, p.description, m.failures, m.next_attempt_at
        FROM unnest($2::uuid[], $3::uuid[]) AS u (connection_id, product_id)
        JOIN product_mirror m ON m.connection_id = u.connection_id AND m.product_id = u.product_id
        JOIN product p ON p.product_id = m.product_id
        WHERE m.account_id = $1 AND p.account_id = $1
        """,
        [connection_id for connection_id, _ in keys],
        [product_id for _, product_id in keys],
    )


async def record_done(
    tx: Tx, mirror: ClaimedMirror, *, gateway_product_id: str, mirrored_at: datetime
) -> None:
    """Record that the gateway has the product. If the product changed since the claim, the row stays due."""
    await tx.execute(
        """
        UPDATE product_mirror m SET lease_until = NULL, failures = 0, last_error = NULL,
            next_attempt_at = CASE WHEN m.next_attempt_at <> $6 THEN m.next_attempt_at END,
            gateway_product_id = $4, mirrored_at = $5
        WHERE m.account_id = $1 AND m.connection_id = $2 AND m.product_id = $3
        """,
        mirror.connection_id,
        mirror.product_id,
        gateway_product_id,
        mirrored_at,
        mirror.next_attempt_at,
    )


async def record_failure(
    tx: Tx, mirror: ClaimedMirror, *, error: str, next_attempt_at: datetime | None
) -> None:
    """Record a failed attempt. If `next_attempt_at` is None, there is no further attempt.

    If the product changed since the claim, the row stays due, and `next_attempt_at` is ignored.
    """
    await tx.execute(
        """
        UPDATE product_mirror m SET lease_until = NULL, failures = m.failures + 1, last_error = $4,
            next_attempt_at = CASE WHEN m.next_attempt_at <> $6 THEN m.next_attempt_at ELSE $5 END
        WHERE m.account_id = $1 AND m.connection_id = $2 AND m.product_id = $3
        """,
        mirror.connection_id,
        mirror.product_id,
        error,
        next_attempt_at,
        mirror.next_attempt_at,
    )
