"""SQL of `payment_entry`: the payments, refunds and disputes of invoices. Entries never change (D-50)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.bank_statement import same_id
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.payments import PaymentEntry, in_order
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class LedgerInvoice:
    """A locked invoice, with the values that `fatura.domain.payments` needs."""

    invoice_id: UUID
    status: InvoiceStatus
    total_cents: int | None
    gateway_invoice_id: str | None


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """A recorded entry from a gateway: its key, and the values that later answers of the gateway must repeat."""

    payment_entry_id: UUID
    connection_id: UUID
    kind: str
    reference: str
    invoice_id: UUID
    amount_cents: int


async def exists(tx: Tx, payment_entry_id: UUID) -> bool:
    return await tx.fetchval(
        "SELECT EXISTS (SELECT FROM payment_entry e WHERE e.account_id = $1 AND e.payment_entry_id = $2)",
        payment_entry_id,
    )


async def find(tx: Tx, payment_entry_id: UUID) -> PaymentEntry | None:
    return await tx.fetchrow_as(
        PaymentEntry,
        """
        SELECT e.payment_entry_id, e.invoice_id, e.charge_id, e.connection_id, e.gateway_charge_id, e.kind,
            e.amount_cents, e.fee_cents, e.currency, e.occurred_at, e.source, e.reference, e.method, e.note,
            e.recorded_at
        FROM payment_entry e WHERE e.account_id = $1 AND e.payment_entry_id = $2
        """,
        payment_entry_id,
    )


async def lock_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, LedgerInvoice]:
    """Lock invoices in id order. Callers must lock an invoice before they read or add its entries."""
    found = await tx.fetch_as(
        LedgerInvoice,
        """
        SELECT v.invoice_id, v.status, v.total_cents, v.gateway_invoice_id FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) ORDER BY v.invoice_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )
    return {each.invoice_id: each for each in found}


async def of_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[PaymentEntry]]:
    """Return the ledger of each invoice, by the invoice's id. The entries have the order in which they happened."""
    if not invoice_ids:
        return {}
    found: dict[UUID, list[PaymentEntry]] = {}
    for entry in await tx.fetch_as(
        PaymentEntry,
        """
        SELECT e.payment_entry_id, e.invoice_id, e.charge_id, e.connection_id, e.gateway_charge_id, e.kind,
            e.amount_cents, e.fee_cents, e.currency, e.occurred_at, e.source, e.reference, e.method, e.note,
            e.recorded_at
        FROM payment_entry e WHERE e.account_id = $1 AND e.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    ):
        found.setdefault(entry.invoice_id, []).append(entry)
    return {invoice_id: in_order(entries) for invoice_id, entries in found.items()}


async def manual_by_reference(tx: Tx, references: Sequence[str]) -> Sequence[PaymentEntry]:
    """Return the account's manual payments that have one of these references, which `same_id` compares."""
    return await tx.fetch_as(
        PaymentEntry,
        """
        SELECT e.payment_entry_id, e.invoice_id, e.charge_id, e.connection_id, e.gateway_charge_id, e.kind,
            e.amount_cents, e.fee_cents, e.currency, e.occurred_at, e.source, e.reference, e.method, e.note,
            e.recorded_at
        FROM payment_entry e
        WHERE e.account_id = $1 AND e.source = 'manual' AND e.kind = 'payment'
            AND e.reference_key = ANY($2::text[])
        """,
        [same_id(each) for each in references],
    )


async def newest_of_invoices(
    tx: Tx, invoice_ids: Sequence[UUID], *, limit: int
) -> Mapping[UUID, Sequence[PaymentEntry]]:
    """Return the `limit` newest entries of each invoice, in the order in which the entries happened."""
    if not invoice_ids:
        return {}
    found: dict[UUID, list[PaymentEntry]] = {}
    for entry in await tx.fetch_as(
        PaymentEntry,
        """
        SELECT n.payment_entry_id, n.invoice_id, n.charge_id, n.connection_id, n.gateway_charge_id, n.kind,
            n.amount_cents, n.fee_cents, n.currency, n.occurred_at, n.source, n.reference, n.method, n.note,
            n.recorded_at
        FROM (
            SELECT e.*, row_number() OVER (
                PARTITION BY e.invoice_id ORDER BY e.occurred_at DESC, e.recorded_at DESC, e.payment_entry_id DESC
            ) AS place
            FROM payment_entry e WHERE e.account_id = $1 AND e.invoice_id = ANY($2::uuid[])
        ) n
        WHERE n.place <= $3
        """,
        invoice_ids,
        limit,
    ):
        found.setdefault(entry.invoice_id, []).append(entry)
    return {invoice_id: in_order(entries) for invoice_id, entries in found.items()}


async def page(tx: Tx, invoice_id: UUID, *, skip: int, limit: int) -> Sequence[PaymentEntry]:
    """Return a page of an invoice's entries, the newest first."""
    return await tx.fetch_as(
        PaymentEntry,
        """
        SELECT e.payment_entry_id, e.invoice_id, e.charge_id, e.connection_id, e.gateway_charge_id, e.kind,
            e.amount_cents, e.fee_cents, e.currency, e.occurred_at, e.source, e.reference, e.method, e.note,
            e.recorded_at
        FROM payment_entry e WHERE e.account_id = $1 AND e.invoice_id = $2
        ORDER BY e.occurred_at DESC, e.recorded_at DESC, e.payment_entry_id DESC OFFSET $3 LIMIT $4
        """,
        invoice_id,
        skip,
        limit,
    )


async def newest_payments(tx: Tx, invoice_ids: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """Return the latest `PaymentEntry.polled_from` among the payments of each invoice, by invoice id."""
    rows = await tx.fetch(
        """
        SELECT e.invoice_id, max(CASE WHEN e.occurred_at BETWEEN e.recorded_at - interval '1 day' AND e.recorded_at
            THEN e.occurred_at ELSE e.recorded_at END) AS paid_at
        FROM payment_entry e
        WHERE e.account_id = $1 AND e.invoice_id = ANY($2::uuid[]) AND e.kind = 'payment' GROUP BY e.invoice_id
        """,
        invoice_ids,
    )
    return {row["invoice_id"]: row["paid_at"] for row in rows}


async def count_manual_payments(tx: Tx, invoice_id: UUID) -> int:
    return await tx.fetchval(
        """
        SELECT count(*) FROM payment_entry e
        WHERE e.account_id = $1 AND e.invoice_id = $2 AND e.source = 'manual' AND e.kind = 'payment'
        """,
        invoice_id,
    )


async def known(tx: Tx, references: Sequence[str]) -> Sequence[KnownEntry]:
    """Return the recorded gateway entries with these references, of any connection and any invoice."""
    return await tx.fetch_as(
        KnownEntry,
        """
        SELECT e.payment_entry_id, e.connection_id, e.kind, e.reference, e.invoice_id, e.amount_cents
        FROM payment_entry e
        WHERE e.account_id = $1 AND e.source = 'gateway' AND e.reference = ANY($2::text[])
        """,
        references,
    )


async def add(tx: Tx, entries: Sequence[PaymentEntry]) -> None:
    """Insert entries of locked invoices."""
    await tx.execute(
        """
        INSERT INTO payment_entry (account_id, payment_entry_id, invoice_id, charge_id, connection_id,
            gateway_charge_id, kind, amount_cents, fee_cents, currency, occurred_at, source, reference, method, note,
            recorded_at)
        SELECT o.account_id, u.payment_entry_id, u.invoice_id, u.charge_id, u.connection_id, u.gateway_charge_id,
            u.kind, u.amount_cents, u.fee_cents, u.currency, u.occurred_at, u.source, u.reference, u.method, u.note,
            u.recorded_at
        FROM account o CROSS JOIN unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::text[],
            $8::int8[], $9::int8[], $10::text[], $11::timestamptz[], $12::text[], $13::text[], $14::text[],
            $15::text[], $16::timestamptz[])
            AS u (payment_entry_id, invoice_id, charge_id, connection_id, gateway_charge_id, kind, amount_cents,
                fee_cents, currency, occurred_at, source, reference, method, note, recorded_at)
        WHERE o.account_id = $1
        """,
        [each.payment_entry_id for each in entries],
        [each.invoice_id for each in entries],
        [each.charge_id for each in entries],
        [each.connection_id for each in entries],
        [each.gateway_charge_id for each in entries],
        [each.kind for each in entries],
        [each.amount_cents for each in entries],
        [each.fee_cents for each in entries],
        [each.currency for each in entries],
        [each.occurred_at for each in entries],
        [each.source for each in entries],
        [each.reference for each in entries],
        [each.method for each in entries],
        [each.note for each in entries],
        [each.recorded_at for each in entries],
    )
