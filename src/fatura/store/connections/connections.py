"""SQL of `gateway_connection`: capabilities, settings and encrypted credentials (D-43)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fatura.domain.connection import Connection
from fatura.domain.gateway_health import HEALTHY, ConnectionHealth
from fatura.store.connections import connection_health
from fatura.store.db import Row, Tx, record

CREDENTIALS_PLACE = "gateway_connection.credentials_sealed"


@dataclass(frozen=True, slots=True)
class StoredConnection:
    """A connection with its settings, its encrypted credentials and its health."""

    connection: Connection
    settings: Mapping[str, Any]
    credentials_sealed: bytes
    provider_account: str | None = None
    polls_per_minute: int | None = None
    health: ConnectionHealth = HEALTHY
    paused_at: datetime | None = None


async def lock_count(tx: Tx) -> int:
    """Return the number of the account's connections. Concurrent callers wait until this transaction ends."""
    await tx.execute("SELECT FROM account a WHERE a.account_id = $1 FOR NO KEY UPDATE")
    return await tx.fetchval("SELECT count(*) FROM gateway_connection g WHERE g.account_id = $1")


async def insert(tx: Tx, stored: StoredConnection) -> None:
    connection = stored.connection
    await tx.execute(
        """
        INSERT INTO gateway_connection (account_id, connection_id, provider, label, active, issues_charges, methods,
            max_installments, product_catalog, settings, credentials_sealed, created_at, provider_account,
            min_amount_cents, min_installment_cents, refunds, credentials_expire_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
        """,
        connection.connection_id,
        connection.provider,
        connection.label,
        connection.active,
        connection.issues_charges,
        list(connection.methods),
        connection.max_installments,
        connection.product_catalog,
        msgspec.json.encode(stored.settings).decode(),
        stored.credentials_sealed,
        connection.created_at,
        stored.provider_account,
        connection.min_amount_cents,
        connection.min_installment_cents,
        connection.refunds,
        connection.credentials_expire_at,
    )
    await tx.execute(
        "INSERT INTO connection_health (account_id, connection_id, polls_per_minute) VALUES ($1, $2, $3)",
        connection.connection_id,
        stored.polls_per_minute,
    )


async def update(tx: Tx, stored: StoredConnection) -> None:
    """Write a connection's mutable columns."""
    connection = stored.connection
    await tx.execute(
        """
        UPDATE gateway_connection g SET label = $3, active = $4, issues_charges = $5, methods = $6,
            max_installments = $7, product_catalog = $8, settings = $9, credentials_sealed = $10,
            provider_account = $11, min_amount_cents = $12, min_installment_cents = $13, refunds = $14,
            credentials_expire_at = $15
        WHERE g.account_id = $1 AND g.connection_id = $2
        """,
        connection.connection_id,
        connection.label,
        connection.active,
        connection.issues_charges,
        list(connection.methods),
        connection.max_installments,
        connection.product_catalog,
        msgspec.json.encode(stored.settings).decode(),
        stored.credentials_sealed,
        stored.provider_account,
        connection.min_amount_cents,
        connection.min_installment_cents,
        connection.refunds,
        connection.credentials_expire_at,
    )
    await tx.execute(
        "UPDATE connection_health h SET polls_per_minute = $3 WHERE h.account_id = $1 AND h.connection_id = $2",
        connection.connection_id,
        stored.polls_per_minute,
    )


async def lock(tx: Tx, connection_id: UUID) -> StoredConnection | None:
    await tx.execute(
        "SELECT FROM gateway_connection g WHERE g.account_id = $1 AND g.connection_id = $2 FOR NO KEY UPDATE",
        connection_id,
    )
    return await find(tx, connection_id)


async def keep_moves_running(tx: Tx, connection_id: UUID) -> None:
    """Lock a connection, so that no move of its subscriptions can end before this transaction ends.

    If a move is ending now, this function waits until that move has ended.
    """
    await tx.execute(
        "SELECT FROM gateway_connection g WHERE g.account_id = $1 AND g.connection_id = $2 FOR KEY SHARE",
        connection_id,
    )


async def find(tx: Tx, connection_id: UUID) -> StoredConnection | None:
    found = await find_all(tx)
    return next((each for each in found if each.connection.connection_id == connection_id), None)


async def find_all(tx: Tx) -> Sequence[StoredConnection]:
    """Return all of the account's connections, oldest first."""
    rows = await tx.fetch(
        """
        SELECT g.connection_id, g.provider, g.label, g.active, g.issues_charges, g.methods, g.max_installments,
            g.min_amount_cents, g.min_installment_cents, g.product_catalog, g.refunds, g.settings,
            g.credentials_sealed, g.created_at, g.provider_account, g.credentials_expire_at, h.failures,
            h.failing_since, h.next_probe_at, h.probes, h.emitted, h.error_code, h.error_detail, h.paused_at,
            h.polls_per_minute, h.failed_reads, h.reads_failing_since, h.reads_reported, h.read_error_code,
            h.read_error_detail
        FROM gateway_connection g JOIN connection_health h ON h.connection_id = g.connection_id
        WHERE g.account_id = $1 AND h.account_id = $1 ORDER BY g.connection_id
        """
    )
    return [_stored(row) for row in rows]


def _stored(row: Row) -> StoredConnection:
    settings = msgspec.json.decode(row["settings"])
    return StoredConnection(
        record(Connection, row),
        settings,
        row["credentials_sealed"],
        row["provider_account"],
        row["polls_per_minute"],
        connection_health.health_of(row),
        row["paused_at"],
    )
