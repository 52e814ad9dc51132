"""SQL of the charges of connections with a Pix key. No provider stores these charges, so Fatura does.

These statements use no table of the engine, and the engine's `store` does not use this table.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, LiteralString, Protocol
from uuid import UUID

CHARGES_A_PAGE = 500
"""Number of charges in a page of `charges_since`."""


class Tx(Protocol):
    """A transaction of one account. `$1` of each statement is the account's id. `store.db` implements this protocol."""

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Any]: ...

    async def fetchrow(self, sql: LiteralString, *values: object) -> Any: ...

    async def execute(self, sql: LiteralString, *values: object) -> int: ...


class Database(Protocol):
    """The method of `store.db.Database` that the adapter uses."""

    def transaction(self, account_id: UUID) -> AbstractAsyncContextManager[Tx]: ...


@dataclass(frozen=True, slots=True)
class PixKeyCharge:
    """A charge; `txid` identifies its payment in the receiver's bank statement. `pix_code` is what the payer got."""

    txid: str
    invoice_id: UUID
    attempt: int
    amount_cents: int
    due_date: date
    pix_code: str
    is_canceled: bool
    created_at: datetime


async def insert(tx: Tx, connection_id: UUID, charge: PixKeyCharge) -> None:
    """Insert a charge. If the connection already has a charge with this `txid`, do nothing."""
    await tx.execute(
        """
        INSERT INTO pix_key_charge (account_id, connection_id, txid, invoice_id, attempt, amount_cents, due_date,
            pix_code, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (account_id, connection_id, txid) DO NOTHING
        """,
        connection_id,
        charge.txid,
        charge.invoice_id,
        charge.attempt,
        charge.amount_cents,
        charge.due_date,
        charge.pix_code,
        charge.created_at,
    )


async def find(tx: Tx, connection_id: UUID, txid: str) -> PixKeyCharge | None:
    row = await tx.fetchrow(
        """
        SELECT c.txid, c.invoice_id, c.attempt, c.amount_cents, c.due_date, c.pix_code, c.is_canceled, c.created_at
        FROM pix_key_charge c WHERE c.account_id = $1 AND c.connection_id = $2 AND c.txid = $3
        """,
        connection_id,
        txid,
    )
    return None if row is None else PixKeyCharge(**row)


async def cancel(tx: Tx, connection_id: UUID, txid: str) -> None:
    await tx.execute(
        """
        UPDATE pix_key_charge c SET is_canceled = true
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.txid = $3
        """,
        connection_id,
        txid,
    )


async def charges_since(
    tx: Tx, connection_id: UUID, since: datetime, *, after: str
) -> Sequence[PixKeyCharge]:
    """Return a page of the charges created at or after `since`, oldest first.

    Charges created at `since` are in the page only if their `txid` is greater than `after`.
    """
    rows = await tx.fetch(
        """
        SELECT c.txid, c.invoice_id, c.attempt, c.amount_cents, c.due_date, c.pix_code, c.is_canceled, c.created_at
        FROM pix_key_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND (c.created_at, c.txid) > ($3, $4)
        ORDER BY c.created_at, c.txid LIMIT $5
        """,
        connection_id,
        since,
        after,
        CHARGES_A_PAGE,
    )
    return [PixKeyCharge(**row) for row in rows]
