"""Accounts in which nothing is charged while they are compared with their gateways after a restore (D-123)."""

from datetime import datetime

from fatura.store.db import Tx


async def freeze(tx: Tx, *, since: datetime) -> None:
    """Let nothing more be charged; waits for the transactions that are about to (`may_charge`)."""
    await tx.execute(
        "UPDATE account a SET recovering_since = $2 WHERE a.account_id = $1 AND a.recovering_since IS NULL",
        since,
    )


async def release(tx: Tx) -> None:
    """Let the account's work go on."""
    await tx.execute("UPDATE account a SET recovering_since = NULL WHERE a.account_id = $1")


async def may_charge(tx: Tx) -> bool:
    """Say whether the account is free to bill; until the commit it stays so."""
    return await tx.fetchval(
        "SELECT a.recovering_since IS NULL FROM account a WHERE a.account_id = $1 FOR SHARE"
    )
