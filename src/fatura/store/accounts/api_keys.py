"""SQL of `api_key`. Only a hash of each key's text is stored (D-41)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.account import Account, Caller
from fatura.domain.credentials import ApiKey
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A key that is not revoked. It may have expired."""

    caller: Caller
    last_used_at: datetime | None
    expires_at: datetime | None


async def find(tx: Tx, secret_hash: bytes) -> KeyHolder | None:
    """Return the key with this hash and its account, or None if the key is unknown or revoked."""
    row = await tx.fetchrow(
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset, k.api_key_id, k.name AS key_name, k.scopes,
            k.last_used_at, k.expires_at, a.suspended_at IS NOT NULL AS is_suspended
        FROM api_key k JOIN account a ON a.account_id = k.account_id
        WHERE k.account_id = $1 AND a.account_id = $1 AND k.secret_hash = $2 AND k.revoked_at IS NULL
        """,
        secret_hash,
    )
    if row is None:
        return None
    caller = record(Caller, row, account=record(Account, row))
    return KeyHolder(caller, row["last_used_at"], row["expires_at"])


async def insert(tx: Tx, key: ApiKey, *, secret_hash: bytes) -> None:
    await tx.execute(
        """
        INSERT INTO api_key (account_id, api_key_id, name, prefix, secret_hash, scopes, expires_at, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        """,
        key.api_key_id,
        key.name,
        key.prefix,
        secret_hash,
        list(key.scopes),
        key.expires_at,
        key.created_at,
    )


async def lock(tx: Tx) -> None:
    """Lock the account, so that only one transaction at a time can create or revoke keys."""
    await tx.execute("SELECT FROM account a WHERE a.account_id = $1 FOR NO KEY UPDATE")


async def count_live(tx: Tx, *, now: datetime) -> int:
    """Return how many keys are neither revoked nor expired."""
    return await tx.fetchval(
        """
        SELECT count(*) FROM api_key k
        WHERE k.account_id = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)
        """,
        now,
    )


async def delete_ended(tx: Tx, *, now: datetime, kept: int, limit: int) -> None:
    """Delete up to `limit` revoked or expired keys, but keep the `kept` newest of these keys."""
    await tx.execute(
        """
        WITH ended AS MATERIALIZED (
            SELECT k.api_key_id FROM api_key k
            WHERE k.account_id = $1 AND (k.revoked_at IS NOT NULL OR k.expires_at <= $2)
            ORDER BY k.api_key_id DESC OFFSET $3 LIMIT $4
        )
        DELETE FROM api_key k USING ended e WHERE k.account_id = $1 AND k.api_key_id = e.api_key_id
        """,
        now,
        kept,
        limit,
    )


async def live_admin_keys(tx: Tx, *, now: datetime) -> Sequence[UUID]:
    """Return the ids of the keys with the scope `admin` that are neither revoked nor expired."""
    rows = await tx.fetch(
        """
        SELECT k.api_key_id FROM api_key k
        WHERE k.account_id = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)
            AND 'admin' = ANY(k.scopes)
        """,
        now,
    )
    return [row["api_key_id"] for row in rows]


async def live(tx: Tx, *, now: datetime) -> Sequence[ApiKey]:
    """Return the keys that are neither revoked nor expired, oldest first."""
    return await tx.fetch_as(
        ApiKey,
        """
        SELECT k.api_key_id, k.name, k.prefix, k.scopes, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
        FROM api_key k
        WHERE k.account_id = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)
        ORDER BY k.api_key_id
        """,
        now,
    )


async def count(tx: Tx) -> int:
    """Return the number of the account's keys, revoked and expired ones included."""
    return await tx.fetchval("SELECT count(*) FROM api_key k WHERE k.account_id = $1")


async def page(tx: Tx, *, skip: int, limit: int) -> Sequence[ApiKey]:
    """Return a page of the account's keys, newest first, revoked and expired ones included."""
    return await tx.fetch_as(
        ApiKey,
        """
        SELECT k.api_key_id, k.name, k.prefix, k.scopes, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
        FROM api_key k WHERE k.account_id = $1 ORDER BY k.api_key_id DESC OFFSET $2 LIMIT $3
        """,
        skip,
        limit,
    )


async def find_by_id(tx: Tx, api_key_id: UUID) -> ApiKey | None:
    return await tx.fetchrow_as(
        ApiKey,
        """
        SELECT k.api_key_id, k.name, k.prefix, k.scopes, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
        FROM api_key k WHERE k.account_id = $1 AND k.api_key_id = $2
        """,
        api_key_id,
    )


async def revoke(tx: Tx, api_key_id: UUID, *, revoked_at: datetime) -> None:
    """Revoke a key. The time of an earlier revocation is kept."""
    await tx.execute(
        """
        UPDATE api_key k SET revoked_at = coalesce(k.revoked_at, $3)
        WHERE k.account_id = $1 AND k.api_key_id = $2
        """,
        api_key_id,
        revoked_at,
    )


async def note_use(tx: Tx, api_key_id: UUID, *, used_at: datetime) -> None:
    await tx.execute(
        "UPDATE api_key k SET last_used_at = $3 WHERE k.account_id = $1 AND k.api_key_id = $2",
        api_key_id,
        used_at,
    )
