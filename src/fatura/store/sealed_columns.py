"""The encrypted columns, with SQL that counts their values by key and replaces values encrypted with an old key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from fatura.store import idempotency
from fatura.store.accounts import secrets
from fatura.store.charging import charge_calls, charges
from fatura.store.connections import connections
from fatura.store.db import Tx
from fatura.store.subscriptions import customers
from fatura.store.vault import Vault

RowId = UUID | str


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """An encrypted column with the statements that replace its values.

    `page` locks and reads the next rows: those with an id above `$2` and a value that is not encrypted with key `$3`.
    `first` is an id below the ids of all rows. `write` stores the new values. If the table also has a hash of the
    plain value, `keyed_hash` computes the new hash, and `write` gets it as `$4`.
    """

    place: str
    first: RowId
    page: LiteralString
    write: LiteralString
    keyed_hash: Callable[[Vault, UUID, bytes], bytes] | None = None


@dataclass(frozen=True, slots=True)
class ReencryptedValue:
    """The newly encrypted value of a row, with a keyed hash if the column has one."""

    row_id: RowId
    sealed: bytes
    keyed_hash: bytes | None


def _document_hash(vault: Vault, account_id: UUID, document: bytes) -> bytes:
    return customers.document_hashes(vault, document.decode(), account_id=account_id)[0]


COLUMNS: tuple[SealedColumn, ...] = (
    SealedColumn(
        secrets.PLACE,
        UUID(int=0),
        """
        SELECT s.integration_secret_id AS row_id, s.sealed AS sealed FROM integration_secret s
        WHERE s.account_id = $1 AND s.integration_secret_id > $2 AND substr(s.sealed, 1, 4) <> $3
        ORDER BY s.integration_secret_id LIMIT $4 FOR NO KEY UPDATE
        """,
        """
        UPDATE integration_secret s SET sealed = n.sealed
        FROM unnest($2::uuid[], $3::bytea[]) AS n (row_id, sealed)
        WHERE s.account_id = $1 AND s.integration_secret_id = n.row_id
        """,
    ),
    SealedColumn(
        connections.CREDENTIALS_PLACE,
        UUID(int=0),
        """
        SELECT g.connection_id AS row_id, g.credentials_sealed AS sealed FROM gateway_connection g
        WHERE g.account_id = $1 AND g.connection_id > $2 AND substr(g.credentials_sealed, 1, 4) <> $3
        ORDER BY g.connection_id LIMIT $4 FOR NO KEY UPDATE
        """,
        """
        UPDATE gateway_connection g SET credentials_sealed = n.sealed
        FROM unnest($2::uuid[], $3::bytea[]) AS n (row_id, sealed)
        WHERE g.account_id = $1 AND g.connection_id = n.row_id
        """,
    ),
    SealedColumn(
        customers.DOCUMENT_PLACE,
        UUID(int=0),
        """
        SELECT c.customer_id AS row_id, c.document_sealed AS sealed FROM customer c
        WHERE c.account_id = $1 AND c.customer_id > $2 AND substr(c.document_sealed, 1, 4) <> $3
        ORDER BY c.customer_id LIMIT $4 FOR NO KEY UPDATE
        """,
        """
        UPDATE customer c SET document_sealed = n.sealed, document_hash = n.hash
        FROM unnest($2::uuid[], $3::bytea[], $4::bytea[]) AS n (row_id, sealed, hash)
        WHERE c.account_id = $1 AND c.customer_id = n.row_id
        """,
        _document_hash,
    ),
    SealedColumn(
        charges.REQUEST_PLACE,
        UUID(int=0),
        """
        SELECT c.charge_id AS row_id, c.request_sealed AS sealed FROM charge c
        WHERE c.account_id = $1 AND c.charge_id > $2 AND substr(c.request_sealed, 1, 4) <> $3
        ORDER BY c.charge_id LIMIT $4 FOR NO KEY UPDATE
        """,
        """
        UPDATE charge c SET request_sealed = n.sealed
        FROM unnest($2::uuid[], $3::bytea[]) AS n (row_id, sealed)
        WHERE c.account_id = $1 AND c.charge_id = n.row_id
        """,
    ),
    SealedColumn(
        charge_calls.SEALED_PLACE,
        UUID(int=0),
        """
        SELECT k.call_id AS row_id, k.sealed AS sealed FROM provider_call k
        WHERE k.account_id = $1 AND k.call_id > $2 AND substr(k.sealed, 1, 4) <> $3
        ORDER BY k.call_id LIMIT $4 FOR NO KEY UPDATE
        """,
        """
        UPDATE provider_call k SET sealed = n.sealed
        FROM unnest($2::uuid[], $3::bytea[]) AS n (row_id, sealed)
        WHERE k.account_id = $1 AND k.call_id = n.row_id
        """,
    ),
    SealedColumn(
        idempotency.PLACE,
        "",
        """
        SELECT i.key AS row_id, i.answer AS sealed FROM idempotency_key i
        WHERE i.account_id = $1 AND i.key > $2 AND i.is_sealed AND substr(i.answer, 1, 4) <> $3
        ORDER BY i.key LIMIT $4 FOR NO KEY UPDATE
        """,
        """
        UPDATE idempotency_key i SET answer = n.sealed
        FROM unnest($2::text[], $3::bytea[]) AS n (row_id, sealed)
        WHERE i.account_id = $1 AND i.key = n.row_id
        """,
    ),
    SealedColumn(
        idempotency.BODY_PLACE,
        "",
        """
        SELECT i.key AS row_id, i.body_hash AS sealed FROM idempotency_key i
        WHERE i.account_id = $1 AND i.key > $2 AND substr(i.body_hash, 1, 4) <> $3
        ORDER BY i.key LIMIT $4 FOR NO KEY UPDATE
        """,
        """
        UPDATE idempotency_key i SET body_hash = n.sealed
        FROM unnest($2::text[], $3::bytea[]) AS n (row_id, sealed)
        WHERE i.account_id = $1 AND i.key = n.row_id
        """,
    ),
)
"""All encrypted columns. Add a new one also to `usage`, which shows whether an old key can be removed."""


async def usage(tx: Tx) -> Mapping[bytes, int]:
    """Return the number of values that are encrypted with each key, by key id."""
    rows = await tx.fetch(
        """
        SELECT u.key_id, count(*) AS total FROM (
            SELECT substr(s.sealed, 1, 4) AS key_id FROM integration_secret s WHERE s.account_id = $1
            UNION ALL
            SELECT substr(g.credentials_sealed, 1, 4) FROM gateway_connection g WHERE g.account_id = $1
            UNION ALL
            SELECT substr(c.document_sealed, 1, 4) FROM customer c
            WHERE c.account_id = $1 AND c.document_sealed IS NOT NULL
            UNION ALL
            SELECT substr(r.request_sealed, 1, 4) FROM charge r
            WHERE r.account_id = $1 AND r.request_sealed IS NOT NULL
            UNION ALL
            SELECT substr(k.sealed, 1, 4) FROM provider_call k WHERE k.account_id = $1
            UNION ALL
            SELECT substr(i.answer, 1, 4) FROM idempotency_key i WHERE i.account_id = $1 AND i.is_sealed
            UNION ALL
            SELECT substr(i.body_hash, 1, 4) FROM idempotency_key i WHERE i.account_id = $1
        ) u GROUP BY u.key_id
        """
    )
    return {row["key_id"]: row["total"] for row in rows}


async def page(
    tx: Tx, column: SealedColumn, *, after: RowId, sealing_id: bytes, limit: int
) -> Sequence[tuple[RowId, bytes]]:
    """Lock and return the next rows whose value is not encrypted with key `sealing_id`. Raises LockTimeoutError."""
    rows = await tx.fetch(column.page, after, sealing_id, limit)
    return [(row["row_id"], row["sealed"]) for row in rows]


async def rewrite(tx: Tx, column: SealedColumn, values: Sequence[ReencryptedValue]) -> None:
    """Replace the values of rows that `page` locked in this transaction."""
    arrays: list[list[object]] = [[each.row_id for each in values], [each.sealed for each in values]]
    if column.keyed_hash is not None:
        arrays.append([each.keyed_hash for each in values])
    await tx.execute(column.write, *arrays)
