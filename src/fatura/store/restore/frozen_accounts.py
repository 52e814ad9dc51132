"""Accounts whose billing is stopped while they are compared with their gateways after a restore (D-123)."""

from datetime import datetime

from fatura.store.db import Tx


async def freeze(tx: Tx, *, since: datetime) -> None:
    """Stop billing in the account, after waiting for the end of all transactions that called `may_charge`."""
    await tx.execute(
        "UPDATE account a SET recovering_since = $2 WHERE a.account_id = $1 AND a.recovering_since IS NULL",
        since,
    )


async def release(tx: Tx) -> None:
    await tx.execute("UPDATE account a SET recovering_since = NULL WHERE a.account_id = $1")


async def may_charge(tx: Tx) -> bool:
    """Return whether billing is allowed. A row lock keeps the answer valid until the transaction ends."""
    return await tx.fetchval(
        "SELECT a.recovering_since IS NULL FROM account a WHERE a.account_id = $1 FOR SHARE"
    )
