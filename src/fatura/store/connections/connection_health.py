"""SQL of `connection_health`: whether a connection's calls succeed, and its next probe (D-55)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.gateway_health import CallError, ConnectionHealth, FailedReads
from fatura.store import leases
from fatura.store.db import Discovery, Row, Tx


async def lock(tx: Tx, connection_id: UUID) -> ConnectionHealth:
    row = await tx.fetchrow(
        """
        SELECT h.failures, h.failing_since, h.next_probe_at, h.probes, h.emitted, h.error_code, h.error_detail,
            h.failed_reads, h.reads_failing_since, h.reads_reported, h.read_error_code, h.read_error_detail
        FROM connection_health h WHERE h.account_id = $1 AND h.connection_id = $2 FOR NO KEY UPDATE
        """,
        connection_id,
    )
    assert row is not None, "every connection has a row"
    return health_of(row)


def health_of(row: Row) -> ConnectionHealth:
    return ConnectionHealth(
        failures=row["failures"],
        failing_since=row["failing_since"],
        next_probe_at=row["next_probe_at"],
        probes=row["probes"],
        emitted=row["emitted"],
        error=_error(row["error_code"], row["error_detail"]),
        reads=FailedReads(
            count=row["failed_reads"],
            since=row["reads_failing_since"],
            is_reported=row["reads_reported"],
            error=_error(row["read_error_code"], row["read_error_detail"]),
        ),
    )


def _error(code: str | None, detail: str) -> CallError | None:
    return None if code is None else CallError(code, detail)


async def update(tx: Tx, connection_id: UUID, health: ConnectionHealth, *, ends_lease: bool) -> None:
    """Write a locked connection's health. With `ends_lease`, also end the lease of the probe."""
    await tx.execute(
        """
        UPDATE connection_health h SET failures = $3, failing_since = $4, next_probe_at = $5, probes = $6,
            emitted = $7, error_code = $8, error_detail = $9, failed_reads = $10, reads_failing_since = $11,
            reads_reported = $12, read_error_code = $13, read_error_detail = $14,
            lease_until = CASE WHEN $15 THEN NULL ELSE h.lease_until END
        WHERE h.account_id = $1 AND h.connection_id = $2
        """,
        connection_id,
        health.failures,
        health.failing_since,
        health.next_probe_at,
        health.probes,
        health.emitted,
        None if health.error is None else health.error.code,
        None if health.error is None else health.error.detail,
        health.reads.count,
        health.reads.since,
        health.reads.is_reported,
        None if health.reads.error is None else health.reads.error.code,
        None if health.reads.error is None else health.reads.error.detail,
        ends_lease,
    )


async def set_paused(tx: Tx, connection_id: UUID, *, paused_at: datetime | None) -> None:
    await tx.execute(
        "UPDATE connection_health h SET paused_at = $3 WHERE h.account_id = $1 AND h.connection_id = $2",
        connection_id,
        paused_at,
    )


async def note_expiry(tx: Tx, connection_id: UUID, expire_at: datetime) -> bool:
    """Store that an event tells of this end of the credentials. Return False if an event has told of it before."""
    changed = await tx.execute(
        """
        UPDATE connection_health h SET told_expiry = $3
        WHERE h.account_id = $1 AND h.connection_id = $2 AND h.told_expiry IS DISTINCT FROM $3
        """,
        connection_id,
        expire_at,
    )
    return changed > 0


async def claim_probes(tx: Tx, *, now: datetime, real_now: datetime, lease_until: datetime) -> list[UUID]:
    """Lease the failing connections that have a due probe and that no worker has leased. Return their ids."""
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.connection_id FROM connection_health x
            WHERE x.account_id = $1 AND x.next_probe_at <= $2
                AND (x.lease_until IS NULL OR x.lease_until <= $3 OR x.lease_until > $5)
            ORDER BY x.connection_id FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE connection_health h SET lease_until = $4 FROM due
        WHERE h.account_id = $1 AND h.connection_id = due.connection_id
        RETURNING h.connection_id
        """,
        now,
        real_now,
        lease_until,
        leases.horizon(real_now),
    )
    return [row["connection_id"] for row in rows]


async def discover_probes(discovery: Discovery, *, real_now: datetime) -> Sequence[Account]:
    """Return the accounts with a failing connection whose probe is due and not leased.

    Accounts with an advancing test clock are left out, because the worker that moves the clock makes their probes. This
    does not apply to suspended accounts, whose clocks stand still.
    """
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset
        FROM connection_health h JOIN account a ON a.account_id = h.account_id
        WHERE h.next_probe_at IS NOT NULL AND h.next_probe_at <= $1::timestamptz + a.clock_offset
            AND (h.lease_until IS NULL OR h.lease_until <= $1
                OR h.lease_until > $1::timestamptz + interval '3 minutes')
            AND NOT EXISTS (
                SELECT FROM test_clock t
                WHERE t.account_id = a.account_id AND t.status = 'advancing' AND a.suspended_at IS NULL
            )
        GROUP BY a.account_id, a.mode, a.currency, a.clock_offset
        """,
        real_now,
    )


async def discover_failing(discovery: Discovery) -> int:
    (row,) = await discovery.fetch(
        "SELECT count(*) AS total FROM connection_health h WHERE h.next_probe_at IS NOT NULL"
    )
    return row["total"]
