"""SQL that finds payers by the tax documents in a bank statement's credits, and their charges and payments (D-257)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class PayersCharge:
    """A charge of a payer's open invoice, on any connection.

    `document_hash` is the hash of the payer's tax document.
    """

    document_hash: bytes
    gateway_charge_id: str
    amount_cents: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class PayersPayment:
    """A payment of a payer's invoice.

    A manual payment has no `gateway_charge_id`, and may have no `reference`.
    """

    document_hash: bytes
    reference: str | None
    gateway_charge_id: str | None
    amount_cents: int
    occurred_at: datetime
    recorded_at: datetime
    is_manual: bool


@dataclass(frozen=True, slots=True)
class PayerOfInvoice:
    """The payer of an invoice."""

    invoice_id: UUID
    document_hash: bytes


async def known_hashes(tx: Tx, hashes: Sequence[bytes]) -> Sequence[bytes]:
    """Return those of the given hashes that belong to the tax documents of customers."""
    rows = await tx.fetch(
        """
        SELECT DISTINCT k.document_hash FROM customer k
        WHERE k.account_id = $1 AND k.document_hash = ANY($2::bytea[])
        """,
        hashes,
    )
    return [row["document_hash"] for row in rows]


async def of_payers(tx: Tx, hashes: Sequence[bytes]) -> Sequence[PayersCharge]:
    """Return all charges of the open invoices of the payers whose tax documents have these hashes."""
    return await tx.fetch_as(
        PayersCharge,
        """
        SELECT k.document_hash, c.gateway_invoice_id AS gateway_charge_id, c.amount_cents, c.stage = 'open' AS is_open
        FROM customer k
        JOIN subscription s ON s.account_id = $1 AND s.customer_id = k.customer_id
        JOIN invoice v ON v.account_id = $1 AND v.subscription_id = s.subscription_id
        JOIN charge c ON c.account_id = $1 AND c.invoice_id = v.invoice_id
        WHERE k.account_id = $1 AND k.document_hash = ANY($2::bytea[]) AND v.status IN ('issued', 'overdue')
            AND c.gateway_invoice_id IS NOT NULL
        ORDER BY c.gateway_invoice_id
        """,
        hashes,
    )


async def of_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> Sequence[PayerOfInvoice]:
    """Return the payers of these invoices. An invoice whose customer has no document is left out."""
    return await tx.fetch_as(
        PayerOfInvoice,
        """
        SELECT v.invoice_id, k.document_hash FROM invoice v
        JOIN subscription s ON s.account_id = $1 AND s.subscription_id = v.subscription_id
        JOIN customer k ON k.account_id = $1 AND k.customer_id = s.customer_id
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND k.document_hash IS NOT NULL
        """,
        invoice_ids,
    )


async def payments(
    tx: Tx, hashes: Sequence[bytes], amounts_cents: Sequence[int], *, since: datetime
) -> Sequence[PayersPayment]:
    """Return the payments of these payers and amounts that were made at or after `since`.

    A manual payment is also returned if it was recorded at or after `since`.
    """
    return await tx.fetch_as(
        PayersPayment,
        """
        SELECT k.document_hash, e.reference, e.gateway_charge_id, e.amount_cents, e.occurred_at, e.recorded_at,
            e.source = 'manual' AS is_manual
        FROM customer k
        JOIN subscription s ON s.account_id = $1 AND s.customer_id = k.customer_id
        JOIN invoice v ON v.account_id = $1 AND v.subscription_id = s.subscription_id
        JOIN payment_entry e ON e.account_id = $1 AND e.invoice_id = v.invoice_id
        WHERE k.account_id = $1 AND k.document_hash = ANY($2::bytea[])
            AND e.kind = 'payment' AND e.amount_cents = ANY($3::bigint[])
            AND CASE WHEN e.source = 'manual' THEN greatest(e.occurred_at, e.recorded_at) ELSE e.occurred_at END >= $4
        """,
        hashes,
        amounts_cents,
        since,
    )
