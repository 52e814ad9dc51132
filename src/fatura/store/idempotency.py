"""Idempotency keys: claimed first, so that a second request waits on the row, and answered last (D-14)."""

from dataclasses import dataclass
from datetime import datetime

from fatura.store.db import Tx

PLACE = "idempotency_key.answer"
BODY_PLACE = "idempotency_key.body_hash"


@dataclass(frozen=True, slots=True)
class Claim:
    """What stands behind a key: null status while its request runs in this very transaction."""

    route: str
    body_hash: bytes
    status: int | None
    answer: bytes | None
    is_sealed: bool
    expires_at: datetime


async def claim(
    tx: Tx, key: str, *, route: str, body_hash: bytes, real_now: datetime, expires_at: datetime
) -> bool:
    """Take a key that is unknown or expired; say whether it is ours now. Waits while another request holds it.

    Raises LockTimeoutError when that lasts too long.
    """
    touched = await tx.execute(
        """
        INSERT INTO idempotency_key AS i (account_id, key, route, body_hash, expires_at)
        VALUES ($1, $2, $3, $4, $6)
        ON CONFLICT (account_id, key) DO UPDATE
        SET route = EXCLUDED.route, body_hash = EXCLUDED.body_hash, status = NULL, answer = NULL, is_sealed = false,
            expires_at = EXCLUDED.expires_at
        WHERE i.account_id = $1 AND i.expires_at <= $5
        """,
        key,
        route,
        body_hash,
        real_now,
        expires_at,
    )
    return touched == 1


async def find(tx: Tx, key: str) -> Claim | None:
    """Return what stands behind a key, and hold it: a lock is a write, whose commit waits for the standby.

    So no repeat is told of an answer that a failover might still take back.
    """
    row = await tx.fetchrow(
        """
        SELECT i.route, i.body_hash, i.status, i.answer, i.is_sealed, i.expires_at
        FROM idempotency_key i WHERE i.account_id = $1 AND i.key = $2 FOR NO KEY UPDATE
        """,
        key,
    )
    return None if row is None else Claim(**row)


async def answer(tx: Tx, key: str, *, status: int, answer: bytes, sealed: bool, expires_at: datetime) -> None:
    """Keep the answer that repeats of the request will get."""
    touched = await tx.execute(
        """
        UPDATE idempotency_key i SET status = $3, answer = $4, is_sealed = $5, expires_at = $6
        WHERE i.account_id = $1 AND i.key = $2
        """,
        key,
        status,
        answer,
        sealed,
        expires_at,
    )
    assert touched == 1, "the key was claimed in this transaction"


async def forget_expired(tx: Tx, *, real_now: datetime, limit: int) -> int:
    """Delete expired keys, oldest first; return how many went."""
    return await tx.execute(
        """
        WITH due AS MATERIALIZED (
            SELECT x.key FROM idempotency_key x
            WHERE x.account_id = $1 AND x.expires_at <= $2
            ORDER BY x.expires_at LIMIT $3 FOR UPDATE SKIP LOCKED
        )
        DELETE FROM idempotency_key i USING due WHERE i.account_id = $1 AND i.key = due.key
        """,
        real_now,
        limit,
    )
