"""SQL of `gateway_connection`: capabilities, settings and encrypted credentials (D-43)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from fatura.domain.connection import Connection
from fatura.store.db import Row, Tx, record

CREDENTIALS_PLACE = "gateway_connection.credentials_sealed"


@dataclass(frozen=True, slots=True)
class StoredConnection:
    """A connection with its settings and encrypted credentials."""

    connection: Connection
    settings: Mapping[str, Any]
    credentials_sealed: bytes


async def insert(tx: Tx, stored: StoredConnection) -> None:
    connection = stored.connection
    await tx.execute(
        """
        INSERT INTO gateway_connection (account_id, connection_id, provider, label, active, issues_charges, methods,
            max_installments, product_catalog, settings, credentials_sealed, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
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
    )


async def update(tx: Tx, stored: StoredConnection) -> None:
    """Update the columns of a connection that may change."""
    connection = stored.connection
    await tx.execute(
        """
        UPDATE gateway_connection g SET label = $3, active = $4, issues_charges = $5, methods = $6,
            max_installments = $7, product_catalog = $8, settings = $9, credentials_sealed = $10
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
    )


async def lock(tx: Tx, connection_id: UUID) -> StoredConnection | None:
    await tx.execute(
        "SELECT FROM gateway_connection g WHERE g.account_id = $1 AND g.connection_id = $2 FOR NO KEY UPDATE",
        connection_id,
    )
    return await find(tx, connection_id)


async def find(tx: Tx, connection_id: UUID) -> StoredConnection | None:
    found = await find_all(tx)
    return next((each for each in found if each.connection.connection_id == connection_id), None)


async def find_all(tx: Tx) -> Sequence[StoredConnection]:
    """Return all of the account's connections, oldest first."""
    rows = await tx.fetch(
        """
        SELECT g.connection_id, g.provider, g.label, g.active, g.issues_charges, g.methods, g.max_installments,
            g.product_catalog, g.settings, g.credentials_sealed, g.created_at
        FROM gateway_connection g WHERE g.account_id = $1 ORDER BY g.connection_id
        """
    )
    return [_stored(row) for row in rows]


def _stored(row: Row) -> StoredConnection:
    settings = msgspec.json.decode(row["settings"])
    return StoredConnection(record(Connection, row), settings, row["credentials_sealed"])
