"""Dump the whole database as text, with encrypted values decrypted, so that tests can search it for personal data."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import asyncpg

from fatura.store import idempotency
from fatura.store.charging import charges
from fatura.store.subscriptions import customers
from fatura.store.vault import Vault
from tests.support.databases import as_superuser

SEALED = {
    ("customer", "document_sealed"): (customers.DOCUMENT_PLACE, "customer_id"),
    ("charge", "request_sealed"): (charges.REQUEST_PLACE, "charge_id"),
    ("idempotency_key", "body_hash"): (idempotency.BODY_PLACE, "key"),
}
"""Encrypted columns that may hold data of customers.

A key names the table and the column. A value has the vault's place for the column, and the column of the row's id.
"""


async def dump(url: str, vault: Vault) -> dict[tuple[str, str], str]:
    """Return each row of each table as JSON, by table and primary key.

    Bytes become text. Bytes of SEALED columns are decrypted.
    """
    connection = await asyncpg.connect(as_superuser(url))
    try:
        found: dict[tuple[str, str], str] = {}
        for table, key in await _tables(connection):
            for row in await connection.fetch(f"SELECT * FROM {table}"):  # noqa: S608 - from the catalogue
                values = dict(row)
                identity = json.dumps([str(values[column]) for column in key])
                found[table, identity] = _text(table, values, vault)
        return found
    finally:
        await connection.close()


async def _tables(connection: Any) -> list[tuple[str, list[str]]]:
    rows = await connection.fetch(
        """
        SELECT c.relname, array_agg(a.attname ORDER BY array_position(i.indkey::int2[], a.attnum)) AS key
        FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace GROUP BY c.relname
        """
    )
    return [(row["relname"], row["key"]) for row in rows]


def _text(table: str, values: Mapping[str, Any], vault: Vault) -> str:
    shown = {
        name: _opened(table, name, values, vault) if isinstance(value, bytes) else str(value)
        for name, value in values.items()
    }
    return json.dumps(shown, ensure_ascii=False)


def _opened(table: str, column: str, values: Mapping[str, Any], vault: Vault) -> str:
    """Return bytes as text. Bytes of SEALED columns are decrypted, because their ciphertext differs each time."""
    raw: bytes = values[column]
    if (table, column) not in SEALED:
        return raw.decode("utf-8", "backslashreplace")
    place, id_column = SEALED[table, column]
    account_id: UUID = values["account_id"]
    opened = vault.open(raw, place=place, account_id=account_id, row_id=str(values[id_column]))
    return opened.decode("utf-8", "backslashreplace")
