"""Accounts whose billing is stopped while they are compared with their gateways after a restore (D-123)."""

from datetime import datetime

from fatura.store.db import Tx


async def freeze(tx: Tx, *, since: datetime) -> None:
    """Stop billing in the account. After the commit, call `wait_for_lanes`."""
    await tx.execute(
        "UPDATE account a SET recovering_since = $2 WHERE a.account_id = $1 AND a.recovering_since IS NULL",
        since,
    )


async def wait_for_lanes(tx: Tx) -> None:
    """Wait until all transactions for which `may_charge` or `may_record` returned True have ended.

    Later transactions see that the account is frozen, so they do not prolong this wait.
    """
    await tx.execute("SELECT FROM account_gate g WHERE g.account_id = $1 FOR UPDATE")


async def release(tx: Tx, *, now: datetime) -> None:
    await tx.execute(
        "UPDATE account a SET recovering_since = NULL, restored_at = $2 WHERE a.account_id = $1", now
    )


async def restart_sweeps(tx: Tx, *, now: datetime) -> None:
    """Make the sweep of each connection of the account due. A running sweep starts again from the beginning."""
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

    If the result is True, a lock keeps it valid until the transaction ends (ADR 0019).
    """
    is_open = await tx.execute(
        """
        SELECT FROM account_gate g JOIN account a ON a.account_id = g.account_id
        WHERE g.account_id = $1 AND a.account_id = $1 AND a.recovering_since IS NULL AND a.suspended_at IS NULL
        FOR SHARE OF g
        """
    )
    if not is_open:
        return False
    # Read the account again: it may have been frozen or suspended before the lock was taken.
    return await tx.fetchval(
        "SELECT a.recovering_since IS NULL AND a.suspended_at IS NULL FROM account a WHERE a.account_id = $1"
    )


async def may_record(tx: Tx) -> bool:
    """Return whether the states of charges may be recorded: the account is not frozen. A suspended account may record.

    If the result is True, a lock keeps it valid until the transaction ends (ADR 0019).
    """
    is_open = await tx.execute(
        """
        SELECT FROM account_gate g JOIN account a ON a.account_id = g.account_id
        WHERE g.account_id = $1 AND a.account_id = $1 AND a.recovering_since IS NULL
        FOR KEY SHARE OF g
        """
    )
    if not is_open:
        return False
    # Read the account again: it may have been frozen before the lock was taken.
    return await tx.fetchval("SELECT a.recovering_since IS NULL FROM account a WHERE a.account_id = $1")
