"""The test clock's target and progress; the time itself is stored in `account.clock_offset` (D-45)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from fatura.domain.account import Account
from fatura.store import leases
from fatura.store.db import Discovery, Row, Tx


@dataclass(frozen=True, slots=True)
class StoredClock:
    """A clock's progress. `target_at` is None unless the clock is advancing; `processed` counts each lane's work.

    `leased_by` is the id of the newest claim. The lease of that claim may have ended.
    """

    status: Literal["ready", "advancing"]
    target_at: datetime | None
    leased_by: UUID | None
    processed: Mapping[str, int]


async def insert(tx: Tx) -> None:
    await tx.execute("INSERT INTO test_clock (account_id, status, processed) VALUES ($1, 'ready', '{}')")


async def find(tx: Tx) -> StoredClock | None:
    row = await tx.fetchrow(
        "SELECT c.status, c.target_at, c.leased_by, c.processed FROM test_clock c WHERE c.account_id = $1"
    )
    return None if row is None else _clock(row)


async def lock(tx: Tx) -> StoredClock | None:
    await tx.execute("SELECT FROM test_clock c WHERE c.account_id = $1 FOR NO KEY UPDATE")
    return await find(tx)


async def start(tx: Tx, target_at: datetime) -> None:
    """Set the target to `target_at`; a worker will claim the clock."""
    await tx.execute(
        """
        UPDATE test_clock c SET status = 'advancing', target_at = $2, processed = '{}', lease_until = NULL,
            leased_by = NULL
        WHERE c.account_id = $1
        """,
        target_at,
    )


async def claim(tx: Tx, leased_by: UUID, *, real_now: datetime, lease_until: datetime) -> StoredClock | None:
    """Lease the clock and return it. Return None if it is not advancing, or if an earlier lease is still valid."""
    row = await tx.fetchrow(
        """
        UPDATE test_clock c SET lease_until = $3, leased_by = $5
        WHERE c.account_id = $1 AND c.status = 'advancing'
            AND (c.lease_until IS NULL OR c.lease_until <= $2 OR c.lease_until > $4)
        RETURNING c.status, c.target_at, c.leased_by, c.processed
        """,
        real_now,
        lease_until,
        leases.horizon(real_now),
        leased_by,
    )
    return None if row is None else _clock(row)


async def renew(tx: Tx, leased_by: UUID, *, lease_until: datetime) -> None:
    """Let the lease of the claim `leased_by` end at `lease_until`. If there is a newer claim, do nothing."""
    await tx.execute(
        "UPDATE test_clock c SET lease_until = $3 WHERE c.account_id = $1 AND c.leased_by = $2",
        leased_by,
        lease_until,
    )


async def note_progress(tx: Tx, processed: Mapping[str, int]) -> None:
    await tx.execute(
        "UPDATE test_clock c SET processed = $2 WHERE c.account_id = $1",
        msgspec.json.encode(processed).decode(),
    )


async def finish(tx: Tx, processed: Mapping[str, int]) -> None:
    """Store the progress, and that the clock has reached its target."""
    await tx.execute(
        """
        UPDATE test_clock c SET status = 'ready', target_at = NULL, processed = $2, lease_until = NULL,
            leased_by = NULL
        WHERE c.account_id = $1
        """,
        msgspec.json.encode(processed).decode(),
    )


async def stop(tx: Tx) -> None:
    """Remove the target. The worker that moves the clock notices this after its current step."""
    await tx.execute(
        """
        UPDATE test_clock c SET status = 'ready', target_at = NULL, lease_until = NULL, leased_by = NULL
        WHERE c.account_id = $1
        """
    )


async def discover_advancing(discovery: Discovery, *, real_now: datetime) -> Sequence[Account]:
    """Return the accounts whose clock is advancing and not leased. Suspended accounts are left out (D-242)."""
    rows = await discovery.fetch(
        """
        SELECT c.account_id FROM test_clock c
        WHERE c.status = 'advancing' AND (c.lease_until IS NULL OR c.lease_until <= $1 OR c.lease_until > $2)
        """,
        real_now,
        leases.horizon(real_now),
    )
    if not rows:
        return []
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset FROM account a
        WHERE a.account_id = ANY($1::uuid[]) AND a.suspended_at IS NULL
        """,
        [row["account_id"] for row in rows],
    )


def _clock(row: Row) -> StoredClock:
    return StoredClock(
        row["status"], row["target_at"], row["leased_by"], msgspec.json.decode(row["processed"])
    )
