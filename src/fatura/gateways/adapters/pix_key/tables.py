"""SQL of the charges of connections with a Pix key. No provider stores these charges, so Fatura does.

These statements use no table of the engine, and the engine's `store` does not use these tables.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, LiteralString, Protocol
from uuid import UUID

from fatura.domain.bank_statement import same_id
from fatura.domain.calendar import local_date
from fatura.domain.payments import EntryKind
from fatura.domain.statement_payments import ImportedPayment, StatementPayment

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
    """A charge; `txid` identifies its payment in the receiver's bank statement. The payer received `pix_code`."""

    txid: str
    invoice_id: UUID
    attempt: int
    amount_cents: int
    due_date: date
    pix_code: str
    is_canceled: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class PixKeyEntry:
    """A payment from a bank statement, or a refund.

    The `reference` of a payment is the bank's id of the payment. The `reference` of a refund is the engine's refund id.
    """

    txid: str
    kind: EntryKind
    reference: str
    amount_cents: int
    occurred_at: datetime


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


async def find(tx: Tx, connection_id: UUID, txids: Sequence[str]) -> Sequence[PixKeyCharge]:
    """Return the connection's charges that have one of these txids, ordered by `txid`."""
    rows = await tx.fetch(
        """
        SELECT c.txid, c.invoice_id, c.attempt, c.amount_cents, c.due_date, c.pix_code, c.is_canceled, c.created_at
        FROM pix_key_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.txid = ANY($3::text[])
        ORDER BY c.txid
        """,
        connection_id,
        txids,
    )
    return [PixKeyCharge(**row) for row in rows]


async def invoices(tx: Tx, txids: Sequence[str]) -> dict[str, UUID]:
    """Return the invoice id of each charge with one of these txids, by `txid`, for all connections of the account."""
    rows = await tx.fetch(
        "SELECT c.txid, c.invoice_id FROM pix_key_charge c WHERE c.account_id = $1 AND c.txid = ANY($2::text[])",
        txids,
    )
    return {row["txid"]: row["invoice_id"] for row in rows}


async def lock(tx: Tx, connection_id: UUID, txids: Sequence[str]) -> None:
    """Lock these charges: until this transaction ends, no other transaction can add entries to them or cancel them."""
    await tx.fetch(
        """
        SELECT FROM pix_key_charge c WHERE c.account_id = $1 AND c.connection_id = $2 AND c.txid = ANY($3::text[])
        ORDER BY c.txid FOR NO KEY UPDATE
        """,
        connection_id,
        txids,
    )


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


async def entries(tx: Tx, connection_id: UUID, txids: Sequence[str]) -> Sequence[PixKeyEntry]:
    """Return the payments and refunds of these charges, in the order in which they were recorded."""
    rows = await tx.fetch(
        """
        SELECT e.txid, e.kind, e.reference, e.amount_cents, e.occurred_at FROM pix_key_entry e
        WHERE e.account_id = $1 AND e.connection_id = $2 AND e.txid = ANY($3::text[])
        ORDER BY e.recorded_at, e.kind, e.reference
        """,
        connection_id,
        txids,
    )
    return [_entry(row) for row in rows]


async def payments(tx: Tx, references: Sequence[str]) -> Sequence[ImportedPayment]:
    """Return the account's imported payments with these ids of the bank, which `same_id` compares."""
    rows = await tx.fetch(
        """
        SELECT e.reference AS bank_id, e.txid AS charge_id, c.invoice_id, e.amount_cents, e.occurred_on
        FROM pix_key_entry e
        JOIN pix_key_charge c ON c.account_id = $1 AND c.connection_id = e.connection_id AND c.txid = e.txid
        WHERE e.account_id = $1 AND e.kind = 'payment' AND e.reference_key = ANY($2::text[])
        ORDER BY e.reference_key
        """,
        [same_id(each) for each in references],
    )
    return [ImportedPayment(**row) for row in rows]


async def count_payments(tx: Tx) -> int:
    row = await tx.fetchrow(
        "SELECT count(*) AS payments FROM pix_key_entry e WHERE e.account_id = $1 AND e.kind = 'payment'"
    )
    return row["payments"]


async def lock_imports(tx: Tx) -> None:
    """Wait until no other transaction of the account imports payments."""
    await tx.fetch("SELECT pg_advisory_xact_lock(hashtextextended('pix_key_import ' || $1::uuid, 0))")


async def insert_payments(
    tx: Tx, connection_id: UUID, new: Sequence[StatementPayment], *, now: datetime
) -> Sequence[str]:
    """Insert payments of locked charges, and return the references of the inserted payments.

    A payment is not inserted if the account already has a payment with the same reference.
    """
    rows = await tx.fetch(
        """
        INSERT INTO pix_key_entry (account_id, connection_id, kind, reference, txid, amount_cents, occurred_at,
            occurred_on, is_confirmed, recorded_at)
        SELECT c.account_id, c.connection_id, 'payment', n.reference, c.txid, n.amount_cents, n.occurred_at,
            n.occurred_on, n.is_confirmed, $9
        FROM unnest($3::text[], $4::text[], $5::bigint[], $6::timestamptz[], $7::date[], $8::boolean[])
            AS n (reference, txid, amount_cents, occurred_at, occurred_on, is_confirmed)
        JOIN pix_key_charge c ON c.txid = n.txid
        WHERE c.account_id = $1 AND c.connection_id = $2
        ORDER BY n.reference
        ON CONFLICT DO NOTHING
        RETURNING reference
        """,
        connection_id,
        [each.bank_id for each in new],
        [each.charge_id for each in new],
        [each.amount_cents for each in new],
        [each.occurred_at for each in new],
        [local_date(each.occurred_at) for each in new],
        [each.is_confirmed for each in new],
        now,
    )
    return [row["reference"] for row in rows]


async def insert_refund(tx: Tx, connection_id: UUID, refund: PixKeyEntry, *, now: datetime) -> None:
    await tx.execute(
        """
        INSERT INTO pix_key_entry (account_id, connection_id, kind, reference, txid, amount_cents, occurred_at,
            occurred_on, is_confirmed, recorded_at)
        VALUES ($1, $2, 'refund', $3, $4, $5, $6, $7, true, $8)
        """,
        connection_id,
        refund.reference,
        refund.txid,
        refund.amount_cents,
        refund.occurred_at,
        local_date(refund.occurred_at),
        now,
    )


def _entry(row: Any) -> PixKeyEntry:
    return PixKeyEntry(
        row["txid"], EntryKind(row["kind"]), row["reference"], row["amount_cents"], row["occurred_at"]
    )
