"""SQL of suspended accounts: an operator has stopped their billing and their calls (D-242)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Discovery, Tx


async def lock(tx: Tx) -> datetime | None:
    """Lock the account, and return since when it is suspended, or None."""
    return await tx.fetchval("SELECT a.suspended_at FROM account a WHERE a.account_id = $1 FOR NO KEY UPDATE")


async def suspend(tx: Tx, *, real_now: datetime) -> None:
    await tx.execute("UPDATE account a SET suspended_at = $2 WHERE a.account_id = $1", real_now)


async def resume(tx: Tx, *, now: datetime) -> None:
    await tx.execute("UPDATE account a SET suspended_at = NULL, resumed_at = $2 WHERE a.account_id = $1", now)


async def wait_for_lanes(tx: Tx) -> None:
    """Wait until all transactions for which `may_charge` or `may_work` returned True have ended.

    Call this after the commit of `suspend`. Later transactions see the suspension, so they do not prolong this wait.
    """
    await tx.execute("SELECT FROM account_gate g WHERE g.account_id = $1 FOR NO KEY UPDATE")


async def last_call_ends_at(tx: Tx, *, now: datetime, until: datetime) -> datetime | None:
    """Return the end of the last lease under which a call could still create, refund or cancel a charge, or None.

    The call that creates a charge has a lease of its own (`call_ends_at`), because the payment of an earlier charge can
    end the invoice's lease during the call. Leases that end after `until` are left out. `now` and `until` are real
    time.
    """
    return await tx.fetchval(
        """
        SELECT max(u.ends_at) FROM (
            SELECT v.lease_until AS ends_at FROM invoice v WHERE v.account_id = $1 AND v.status = 'ready'
            UNION ALL
            SELECT c.call_ends_at FROM charge c WHERE c.account_id = $1 AND c.call_ends_at > $2
            UNION ALL
            SELECT r.lease_until FROM refund_request r
            WHERE r.account_id = $1 AND r.next_attempt_at IS NOT NULL AND r.stage = 'sending'
            UNION ALL
            SELECT m.in_progress_until FROM merchant_request m WHERE m.account_id = $1
        ) u WHERE u.ends_at > $2 AND u.ends_at <= $3
        """,
        now,
        until,
    )


async def may_work(tx: Tx) -> bool:
    """Return whether calls to merchants and moves of subscriptions may begin: the account is not suspended (D-242).

    A frozen account may do both. If the result is true, a lock keeps it valid until the transaction ends (ADR 0019).
    """
    is_open = await tx.execute(
        """
        SELECT FROM account_gate g JOIN account a ON a.account_id = g.account_id
        WHERE g.account_id = $1 AND a.account_id = $1 AND a.suspended_at IS NULL
        FOR SHARE OF g
        """
    )
    if not is_open:
        return False
    # Read the account again: it may have been suspended before the lock was taken.
    return await tx.fetchval("SELECT a.suspended_at IS NULL FROM account a WHERE a.account_id = $1")


async def discover(discovery: Discovery) -> Sequence[UUID]:
    """Return the ids of all suspended accounts."""
    rows = await discovery.fetch("SELECT a.account_id FROM account a WHERE a.suspended_at IS NOT NULL")
    return [row["account_id"] for row in rows]
