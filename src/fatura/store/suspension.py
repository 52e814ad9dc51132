"""SQL of suspended accounts: an operator has stopped their billing and their calls (D-242)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Discovery, Tx


async def lock(tx: Tx) -> datetime | None:
    """Lock the account, and return since when it is suspended, or None."""
    return await tx.fetchval("SELECT a.suspended_at FROM account a WHERE a.account_id = $1 FOR NO KEY UPDATE")


async def write(tx: Tx, suspended_at: datetime | None) -> None:
    await tx.execute("UPDATE account a SET suspended_at = $2 WHERE a.account_id = $1", suspended_at)


async def wait_for_billing(tx: Tx) -> None:
    """Wait until all transactions for which `may_charge` returned True have ended.

    Call this after the commit of `write`. Later transactions see it, so they do not prolong this wait.
    """
    await tx.execute("SELECT FROM account_gate g WHERE g.account_id = $1 FOR NO KEY UPDATE")


async def is_suspended(tx: Tx) -> bool:
    return await tx.fetchval("SELECT a.suspended_at IS NOT NULL FROM account a WHERE a.account_id = $1")


async def discover(discovery: Discovery) -> Sequence[UUID]:
    """Return the ids of all suspended accounts."""
    rows = await discovery.fetch("SELECT a.account_id FROM account a WHERE a.suspended_at IS NOT NULL")
    return [row["account_id"] for row in rows]
