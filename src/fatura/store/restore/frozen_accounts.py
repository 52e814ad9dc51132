"""Accounts whose billing is stopped while they are compared with their gateways after a restore (D-123)."""

from datetime import datetime

from fatura.store.db import Tx


async def freeze(tx: Tx, *, since: datetime) -> None:
    """Stop billing in the account. First wait until all transactions that called `may_record` have ended."""
    await tx.execute(
        "UPDATE account a SET recovering_since = $2 WHERE a.account_id = $1 AND a.recovering_since IS NULL",
        since,
    )


async def release(tx: Tx, *, now: datetime) -> None:
    await tx.execute(
        "UPDATE account a SET recovering_since = NULL, restored_at = $2 WHERE a.account_id = $1", now
    )


async def restart_sweeps(tx: Tx, *, now: datetime) -> None:
    """Make the sweep of each connection of the account due. A running sweep starts again with the whole list."""
    await tx.execute(
        """
        UPDATE connection_sweep s SET next_sweep_at = least(s.next_sweep_at, $2), lease_until = NULL, started_at = NULL,
            listed_to = NULL, checked_to = NULL
        WHERE s.account_id = $1
        """,
        now,
    )


async def may_charge(tx: Tx) -> bool:
    """Return whether invoices may be generated and issued: the account is neither frozen nor suspended (D-242).

    A row lock keeps the answer valid until the transaction ends.
    """
    return await tx.fetchval(
        """
        SELECT a.recovering_since IS NULL AND a.suspended_at IS NULL FROM account a WHERE a.account_id = $1 FOR SHARE
        """
    )


async def may_record(tx: Tx) -> bool:
    """Return whether the states of charges may be recorded: the account is not frozen, but may be suspended.

    A row lock keeps the answer valid until the transaction ends.
    """
    return await tx.fetchval(
        "SELECT a.recovering_since IS NULL FROM account a WHERE a.account_id = $1 FOR SHARE"
    )
