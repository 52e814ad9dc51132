"""The integration secrets that sign webhooks and price calls; they are stored encrypted."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx

PLACE = "integration_secret.sealed"


async def find_current(tx: Tx) -> tuple[UUID, bytes] | None:
    """Return the id and the encrypted text of the current secret, or None if there is none."""
    row = await tx.fetchrow(
        """
        SELECT s.integration_secret_id, s.sealed FROM integration_secret s
        WHERE s.account_id = $1 AND s.valid_until IS NULL
        """
    )
    return None if row is None else (row["integration_secret_id"], row["sealed"])


async def insert(tx: Tx, secret_id: UUID, *, sealed: bytes, created_at: datetime) -> None:
    await tx.execute(
        """
        INSERT INTO integration_secret (account_id, integration_secret_id, sealed, created_at)
        VALUES ($1, $2, $3, $4)
        """,
        secret_id,
        sealed,
        created_at,
    )


async def find_valid(tx: Tx, *, now: datetime, limit: int) -> Sequence[tuple[UUID, bytes]]:
    """Return the ids and encrypted texts of the current secret and of the valid previous ones, newest first (D-40)."""
    rows = await tx.fetch(
        """
        SELECT s.integration_secret_id, s.sealed FROM integration_secret s
        WHERE s.account_id = $1 AND (s.valid_until IS NULL OR s.valid_until > $2)
        ORDER BY s.valid_until DESC NULLS FIRST, s.integration_secret_id DESC LIMIT $3
        """,
        now,
        limit,
    )
    return [(row["integration_secret_id"], row["sealed"]) for row in rows]


async def delete_unused(tx: Tx, *, now: datetime, kept: int) -> None:
    """Delete the secrets that sign nothing: the expired secrets, and any valid secrets beyond the newest `kept`."""
    await tx.execute(
        """
        WITH used AS MATERIALIZED (
            SELECT s.integration_secret_id FROM integration_secret s
            WHERE s.account_id = $1 AND (s.valid_until IS NULL OR s.valid_until > $2)
            ORDER BY s.valid_until DESC NULLS FIRST, s.integration_secret_id DESC LIMIT $3
        )
        DELETE FROM integration_secret s
        WHERE s.account_id = $1 AND s.integration_secret_id NOT IN (SELECT u.integration_secret_id FROM used u)
        """,
        now,
        kept,
    )


async def lock(tx: Tx) -> None:
    """Lock the account, so that concurrent rotations run one after the other."""
    await tx.execute("SELECT a.account_id FROM account a WHERE a.account_id = $1 FOR NO KEY UPDATE")


async def retire(tx: Tx, *, valid_until: datetime) -> None:
    """Let the current secret expire at `valid_until`; the caller must insert a new secret in the same transaction."""
    await tx.execute(
        "UPDATE integration_secret s SET valid_until = $2 WHERE s.account_id = $1 AND s.valid_until IS NULL",
        valid_until,
    )


async def revoke_all(tx: Tx, *, now: datetime) -> None:
    """End the current secret and all previous ones; the caller must insert a new secret in the same transaction."""
    await tx.execute(
        """
        UPDATE integration_secret s SET valid_until = $2
        WHERE s.account_id = $1 AND (s.valid_until IS NULL OR s.valid_until > $2)
        """,
        now,
    )
