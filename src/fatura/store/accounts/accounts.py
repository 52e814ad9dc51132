"""Accounts and their API keys. For integration secrets see `store.accounts.secrets`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account, Caller
from fatura.domain.credentials import ALL_SCOPES, ApiKey, Mode
from fatura.store.db import Discovery, Tx, record


async def insert(tx: Tx, *, name: str, mode: Mode, currency: str, created_at: datetime) -> None:
    """Insert the transaction's account and its counter row, and add the account's id to `opened_account`."""
    await tx.execute(
        """
        INSERT INTO account (account_id, name, mode, currency, clock_offset, created_at)
        VALUES ($1, $2, $3, $4, $5, $6)
        """,
        name,
        mode,
        currency,
        timedelta(0),
        created_at,
    )
    await tx.execute("INSERT INTO account_counter (account_id) VALUES ($1)")
    await tx.execute("INSERT INTO opened_account (id, opened_at) VALUES ($1, $2)", created_at)


async def discover_newest(discovery: Discovery) -> UUID | None:
    """Return the newest account's id, which is the largest, because account ids begin with a timestamp."""
    rows = await discovery.fetch("SELECT a.account_id FROM account a ORDER BY a.account_id DESC LIMIT 1")
    return rows[0]["account_id"] if rows else None


async def discover_opened(discovery: Discovery) -> Sequence[UUID]:
    """Return the ids of all accounts that were ever opened."""
    return [row["id"] for row in await discovery.fetch("SELECT o.id FROM opened_account o ORDER BY o.id")]


async def load(tx: Tx) -> Account | None:
    return await tx.fetchrow_as(
        Account,
        "SELECT a.account_id, a.mode, a.currency, a.clock_offset FROM account a WHERE a.account_id = $1",
    )


async def set_clock_offset(tx: Tx, offset: timedelta) -> None:
    """Set the difference between a sandbox account's clock and real time (D-45)."""
    await tx.execute("UPDATE account a SET clock_offset = $2 WHERE a.account_id = $1", offset)


@dataclass(frozen=True, slots=True)
class KeyHolder:
    caller: Caller
    last_used_at: datetime | None


async def find_key(tx: Tx, secret_hash: bytes) -> KeyHolder | None:
    """Return the key with this hash and its account, or None if the key is unknown or revoked."""
    row = await tx.fetchrow(
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset, k.api_key_id, k.name AS key_name, k.scopes,
            k.last_used_at
        FROM api_key k JOIN account a ON a.account_id = k.account_id
        WHERE k.account_id = $1 AND a.account_id = $1 AND k.secret_hash = $2 AND k.revoked_at IS NULL
        """,
        secret_hash,
    )
    if row is None:
        return None
    return KeyHolder(record(Caller, row, account=record(Account, row)), row["last_used_at"])


async def insert_key(tx: Tx, key: ApiKey, *, secret_hash: bytes) -> None:
    await tx.execute(
        """
        INSERT INTO api_key (account_id, api_key_id, name, prefix, secret_hash, created_at, scopes)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        key.api_key_id,
        key.name,
        key.prefix,
        secret_hash,
        key.created_at,
        sorted(ALL_SCOPES),
    )


async def lock_usable_keys(tx: Tx) -> int:
    """Return the number of keys that are not revoked. Concurrent callers wait until this transaction ends."""
    await tx.execute("SELECT FROM account a WHERE a.account_id = $1 FOR NO KEY UPDATE")
    return await tx.fetchval(
        "SELECT count(*) FROM api_key k WHERE k.account_id = $1 AND k.revoked_at IS NULL"
    )


async def count_keys(tx: Tx) -> int:
    """Return the number of the account's keys, revoked ones included."""
    return await tx.fetchval("SELECT count(*) FROM api_key k WHERE k.account_id = $1")


async def key_page(tx: Tx, *, skip: int, limit: int) -> Sequence[ApiKey]:
    """Return a page of the account's keys, newest first, revoked ones included."""
    return await tx.fetch_as(
        ApiKey,
        """
        SELECT k.api_key_id, k.name, k.prefix, k.created_at, k.last_used_at, k.revoked_at
        FROM api_key k WHERE k.account_id = $1 ORDER BY k.api_key_id DESC OFFSET $2 LIMIT $3
        """,
        skip,
        limit,
    )


async def revoke_key(tx: Tx, api_key_id: UUID, *, revoked_at: datetime) -> bool:
    """Revoke a key. Return False if the key does not exist. The time of an earlier revocation is kept."""
    touched = await tx.execute(
        """
        UPDATE api_key k SET revoked_at = coalesce(k.revoked_at, $3)
        WHERE k.account_id = $1 AND k.api_key_id = $2
        """,
        api_key_id,
        revoked_at,
    )
    return touched == 1


async def touch_key(tx: Tx, api_key_id: UUID, *, used_at: datetime) -> None:
    await tx.execute(
        "UPDATE api_key k SET last_used_at = $3 WHERE k.account_id = $1 AND k.api_key_id = $2",
        api_key_id,
        used_at,
    )
