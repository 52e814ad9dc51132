"""SQL of `account`, and of the list of all accounts that were ever opened."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account, AccountSummary
from fatura.domain.credentials import Mode
from fatura.store.db import Discovery, Tx
from fatura.store.retention import progress


async def insert(tx: Tx, *, name: str, mode: Mode, currency: str, created_at: datetime) -> None:
    """Insert the transaction's account and the rows that every account has, and add its id to `opened_account`."""
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
    await tx.execute("INSERT INTO account_gate (account_id) VALUES ($1)")
    await tx.execute("INSERT INTO account_counter (account_id) VALUES ($1)")
    await progress.insert(tx, created_at=created_at)
    await tx.execute("INSERT INTO opened_account (id, opened_at) VALUES ($1, $2)", created_at)


async def discover_newest(discovery: Discovery) -> UUID | None:
    """Return the newest account's id, which is the largest, because account ids begin with a timestamp."""
    rows = await discovery.fetch("SELECT a.account_id FROM account a ORDER BY a.account_id DESC LIMIT 1")
    return rows[0]["account_id"] if rows else None


async def discover_opened(discovery: Discovery) -> Sequence[UUID]:
    """Return the ids of all accounts that were ever opened."""
    return [row["id"] for row in await discovery.fetch("SELECT o.id FROM opened_account o ORDER BY o.id")]


async def discover_page(discovery: Discovery, *, after: UUID, limit: int) -> Sequence[AccountSummary]:
    """Return the first `limit` accounts with ids above `after`, oldest first."""
    return await discovery.fetch_as(
        AccountSummary,
        """
        SELECT a.account_id, a.name, a.mode, a.currency, a.created_at, a.suspended_at, a.recovering_since
        FROM account a WHERE a.account_id > $1 ORDER BY a.account_id LIMIT $2
        """,
        after,
        limit,
    )


async def summary(tx: Tx) -> AccountSummary | None:
    return await tx.fetchrow_as(
        AccountSummary,
        """
        SELECT a.account_id, a.name, a.mode, a.currency, a.created_at, a.suspended_at, a.recovering_since
        FROM account a WHERE a.account_id = $1
        """,
    )


async def load(tx: Tx) -> Account | None:
    return await tx.fetchrow_as(
        Account,
        "SELECT a.account_id, a.mode, a.currency, a.clock_offset FROM account a WHERE a.account_id = $1",
    )


async def set_clock_offset(tx: Tx, offset: timedelta) -> None:
    """Set the difference between a sandbox account's clock and real time (D-45)."""
    await tx.execute("UPDATE account a SET clock_offset = $2 WHERE a.account_id = $1", offset)
