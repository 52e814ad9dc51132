"""The test clock's target and progress; the clock itself is `account.clock_offset` (D-45)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from fatura.domain.account import Account
from fatura.store.accounts.accounts import account_of
from fatura.store.db import Discovery, Row, Tx


@dataclass(frozen=True, slots=True)
class StoredClock:
    """Where an advance stands: `target_at` is null when ready; `processed` counts work by lane."""

    status: str
    target_at: datetime | None
    processed: Mapping[str, int]


async def insert(tx: Tx) -> None:
    """Give a sandbox account its clock."""
    await tx.execute("INSERT INTO test_clock (account_id, status, processed) VALUES ($1, 'ready', '{}')")


async def find(tx: Tx) -> StoredClock | None:
    """Return the account's test clock."""
    row = await tx.fetchrow(
        "SELECT c.status, c.target_at, c.processed FROM test_clock c WHERE c.account_id = $1"
    )
    return None if row is None else _clock(row)


async def lock(tx: Tx) -> StoredClock | None:
    """Return the account's test clock and hold it against other writers."""
    row = await tx.fetchrow(
        "SELECT c.status, c.target_at, c.processed FROM test_clock c WHERE c.account_id = $1 FOR NO KEY UPDATE"
    )
    return None if row is None else _clock(row)


async def start(tx: Tx, target_at: datetime) -> None:
    """Set the target that a worker will drive the clock to."""
    await tx.execute(
        """
        UPDATE test_clock c SET status = 'advancing', target_at = $2, processed = '{}', lease_until = NULL
        WHERE c.account_id = $1
        """,
        target_at,
    )


async def claim(tx: Tx, *, real_now: datetime, lease_until: datetime) -> StoredClock | None:
    """Lease an advancing clock that no living worker drives."""
    row = await tx.fetchrow(
        """
        UPDATE test_clock c SET lease_until = $3
        WHERE c.account_id = $1 AND c.status = 'advancing' AND (c.lease_until IS NULL OR c.lease_until <= $2)
        RETURNING c.status, c.target_at, c.processed
        """,
        real_now,
        lease_until,
    )
    return None if row is None else _clock(row)


async def note_progress(tx: Tx, processed: Mapping[str, int], *, lease_until: datetime) -> None:
    """Keep what was done so far, and the lease."""
    await tx.execute(
        """
        UPDATE test_clock c SET processed = $2, lease_until = $3
        WHERE c.account_id = $1 AND c.status = 'advancing'
        """,
        msgspec.json.encode(processed).decode(),
        lease_until,
    )


async def finish(tx: Tx, processed: Mapping[str, int]) -> None:
    """Mark the target as reached."""
    await tx.execute(
        """
        UPDATE test_clock c SET status = 'ready', target_at = NULL, processed = $2, lease_until = NULL
        WHERE c.account_id = $1
        """,
        msgspec.json.encode(processed).decode(),
    )


async def discover_advancing(discovery: Discovery, *, real_now: datetime) -> list[Account]:
    """Return the accounts whose clock waits for a driver."""
    rows = await discovery.fetch(
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset
        FROM test_clock c JOIN account a ON a.account_id = c.account_id
        WHERE c.status = 'advancing' AND (c.lease_until IS NULL OR c.lease_until <= $1)
        """,
        real_now,
    )
    return [account_of(row) for row in rows]


def _clock(row: Row) -> StoredClock:
    return StoredClock(row["status"], row["target_at"], msgspec.json.decode(row["processed"]))
