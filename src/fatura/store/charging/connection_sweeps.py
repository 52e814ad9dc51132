"""SQL of `connection_sweep`: when each connection is swept next, and the progress of its sweep (D-161)."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.store import leases
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class ClaimedSweep:
    """A leased sweep.

    `started_at` is None until the sweep begins. `checked_to` is None until the sweep has read the provider's list.
    """

    connection_id: UUID
    lease_until: datetime
    swept_to: datetime
    started_at: datetime | None
    listed_to: datetime | None
    checked_to: UUID | None


async def insert(tx: Tx, connection_id: UUID, *, created_at: datetime, next_sweep_at: datetime) -> None:
    await tx.execute(
        """
        INSERT INTO connection_sweep (account_id, connection_id, swept_to, next_sweep_at) VALUES ($1, $2, $3, $4)
        """,
        connection_id,
        created_at,
        next_sweep_at,
    )


async def claim(tx: Tx, *, now: datetime, real_now: datetime, lease_until: datetime) -> ClaimedSweep | None:
    """Lease and return the account's sweep that has been due longest. Sweeps that a worker has leased are left out."""
    return await tx.fetchrow_as(
        ClaimedSweep,
        """
        WITH due AS MATERIALIZED (
            SELECT x.connection_id FROM connection_sweep x
            WHERE x.account_id = $1 AND x.next_sweep_at <= $2
                AND (x.lease_until IS NULL OR x.lease_until <= $3 OR x.lease_until > $5)
            ORDER BY x.next_sweep_at LIMIT 1
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE connection_sweep s SET lease_until = $4 FROM due
        WHERE s.account_id = $1 AND s.connection_id = due.connection_id
        RETURNING s.connection_id, s.lease_until, s.swept_to, s.started_at, s.listed_to, s.checked_to
        """,
        now,
        real_now,
        lease_until,
        leases.horizon(real_now),
    )


async def advance(
    tx: Tx,
    of: ClaimedSweep,
    *,
    lease_until: datetime,
    started_at: datetime,
    listed_to: datetime,
    checked_to: UUID | None,
) -> ClaimedSweep | None:
    """Store the progress of a sweep, and renew its lease. Return None if another worker has leased the sweep."""
    return await tx.fetchrow_as(
        ClaimedSweep,
        """
        UPDATE connection_sweep s SET lease_until = $4, started_at = $5, listed_to = $6, checked_to = $7
        WHERE s.account_id = $1 AND s.connection_id = $2 AND s.lease_until = $3
        RETURNING s.connection_id, s.lease_until, s.swept_to, s.started_at, s.listed_to, s.checked_to
        """,
        of.connection_id,
        of.lease_until,
        lease_until,
        started_at,
        listed_to,
        checked_to,
    )


async def release(tx: Tx, of: ClaimedSweep, *, next_sweep_at: datetime) -> None:
    """End the lease; the sweep continues at `next_sweep_at`. Do nothing if another worker has leased the sweep."""
    await tx.execute(
        """
        UPDATE connection_sweep s SET lease_until = NULL, next_sweep_at = $4
        WHERE s.account_id = $1 AND s.connection_id = $2 AND s.lease_until = $3
        """,
        of.connection_id,
        of.lease_until,
        next_sweep_at,
    )


async def complete(tx: Tx, of: ClaimedSweep, *, next_sweep_at: datetime) -> None:
    """End a sweep that has compared all charges, and end its lease. The next sweep begins at `next_sweep_at`.

    Do nothing if another worker has leased the sweep.
    """
    await tx.execute(
        """
        UPDATE connection_sweep s SET lease_until = NULL, next_sweep_at = $4, swept_to = s.started_at,
            started_at = NULL, listed_to = NULL, checked_to = NULL
        WHERE s.account_id = $1 AND s.connection_id = $2 AND s.lease_until = $3
        """,
        of.connection_id,
        of.lease_until,
        next_sweep_at,
    )
