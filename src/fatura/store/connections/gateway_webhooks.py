"""SQL of `gateway_webhook`: the authentic webhooks that took effect, so that copies have no effect (D-266)."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx

Key = tuple[UUID, bytes]
"""A webhook's connection and digest."""


async def add(tx: Tx, webhooks: Collection[Key], *, received_at: datetime) -> set[Key]:
    """Store webhooks, and return those that were not stored yet.

    If another transaction is storing one of them, wait until that transaction ends. Webhooks are inserted in order, to
    avoid deadlocks.
    """
    keys = sorted(set(webhooks))
    rows = await tx.fetch(
        """
        INSERT INTO gateway_webhook (account_id, connection_id, digest, received_at)
        SELECT o.account_id, n.connection_id, n.digest, $4
        FROM account o CROSS JOIN unnest($2::uuid[], $3::bytea[]) AS n (connection_id, digest)
        WHERE o.account_id = $1
        ORDER BY n.connection_id, n.digest
        ON CONFLICT (account_id, connection_id, digest) DO NOTHING
        RETURNING connection_id, digest
        """,
        [connection_id for connection_id, _ in keys],
        [digest for _, digest in keys],
        received_at,
    )
    return {(row["connection_id"], row["digest"]) for row in rows}


async def remove(tx: Tx, webhooks: Collection[Key]) -> None:
    """Remove webhooks that the same transaction has stored, so that a copy of them counts as new."""
    await tx.execute(
        """
        DELETE FROM gateway_webhook w USING unnest($2::uuid[], $3::bytea[]) AS n (connection_id, digest)
        WHERE w.account_id = $1 AND w.connection_id = n.connection_id AND w.digest = n.digest
        """,
        [connection_id for connection_id, _ in webhooks],
        [digest for _, digest in webhooks],
    )


async def delete_old(tx: Tx, *, stored_to: datetime, limit: int) -> int:
    """Delete up to `limit` webhooks that were received at `stored_to` or earlier, oldest first. Return how many."""
    return await tx.execute(
        """
        WITH old AS MATERIALIZED (
            SELECT x.connection_id, x.digest FROM gateway_webhook x
            WHERE x.account_id = $1 AND x.received_at <= $2 ORDER BY x.received_at LIMIT $3
        )
        DELETE FROM gateway_webhook w USING old o
        WHERE w.account_id = $1 AND w.connection_id = o.connection_id AND w.digest = o.digest
        """,
        stored_to,
        limit,
    )


async def first_received_at(tx: Tx) -> datetime | None:
    """Return when the oldest stored webhook was received, or None."""
    return await tx.fetchval("SELECT min(w.received_at) FROM gateway_webhook w WHERE w.account_id = $1")
