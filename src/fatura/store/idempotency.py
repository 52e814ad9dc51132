"""Idempotency keys. A request first claims its key, so a concurrent repeat waits for the key's row lock (D-14)."""

from dataclasses import dataclass
from datetime import datetime

from fatura.store.db import Tx, check_rows

PLACE = "idempotency_key.answer"
BODY_PLACE = "idempotency_key.body_hash"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with its request and answer.

    `status` is null until the request has an answer. While the request waits for a third party, a repeat may continue
    the request only after `in_progress_until` (real time).
    """

    route: str
    body_hash: bytes
    status: int | None
    answer: bytes | None
    is_sealed: bool
    expires_at: datetime
    in_progress_until: datetime | None


async def claim(
    tx: Tx, key: str, *, route: str, body_hash: bytes, real_now: datetime, expires_at: datetime
) -> bool:
    """Claim a key that is unknown or expired; return False if an earlier request has claimed it.

    Waits for a concurrent transaction that claims the same key. Raises LockTimeoutError.
    """
    touched = await tx.execute(
        """
        INSERT INTO idempotency_key AS i (account_id, key, route, body_hash, expires_at)
        VALUES ($1, $2, $3, $4, $6)
        ON CONFLICT (account_id, key) DO UPDATE
        SET route = EXCLUDED.route, body_hash = EXCLUDED.body_hash, status = NULL, answer = NULL, is_sealed = false,
            expires_at = EXCLUDED.expires_at, in_progress_until = NULL
        WHERE i.account_id = $1 AND i.expires_at <= $5
        """,
        key,
        route,
        body_hash,
        real_now,
        expires_at,
    )
    return touched == 1


async def find(tx: Tx, key: str) -> StoredKey | None:
    """Lock a key and return it.

    Because of the lock, the transaction counts as a write, and its commit waits for the standby. Therefore a failover
    cannot lose an answer that a repeated request has got.
    """
    return await tx.fetchrow_as(
        StoredKey,
        """
        SELECT i.route, i.body_hash, i.status, i.answer, i.is_sealed, i.expires_at, i.in_progress_until
        FROM idempotency_key i WHERE i.account_id = $1 AND i.key = $2 FOR NO KEY UPDATE
        """,
        key,
    )


async def store_answer(
    tx: Tx, key: str, *, status: int, answer: bytes, sealed: bool, expires_at: datetime
) -> None:
    """Store the answer that repeats of the request get."""
    touched = await tx.execute(
        """
        UPDATE idempotency_key i SET status = $3, answer = $4, is_sealed = $5, expires_at = $6,
            in_progress_until = NULL
        WHERE i.account_id = $1 AND i.key = $2
        """,
        key,
        status,
        answer,
        sealed,
        expires_at,
    )
    check_rows(touched, 1)  # the key was claimed in this transaction


async def set_in_progress(tx: Tx, key: str, *, until: datetime) -> None:
    """Set the instant until which repeats of an unanswered request are refused."""
    await tx.execute(
        """
        UPDATE idempotency_key i SET in_progress_until = $3
        WHERE i.account_id = $1 AND i.key = $2 AND i.status IS NULL
        """,
        key,
        until,
    )


async def delete_unanswered(tx: Tx, key: str) -> None:
    await tx.execute(
        "DELETE FROM idempotency_key i WHERE i.account_id = $1 AND i.key = $2 AND i.status IS NULL", key
    )


async def delete_expired(tx: Tx, *, real_now: datetime, limit: int) -> int:
    """Delete expired keys, oldest first; return the number of deleted keys."""
    # One statement can delete many keys, because no key can make the statement fail: no row references a key, no
    # trigger fires, and locked keys are skipped.
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
