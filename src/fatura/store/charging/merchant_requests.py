"""SQL of `reissue_request`: reissues that wait for the cancellation of a charge (D-51).

`insert_planned` inserts the next charge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.charge import ChargeTerms, InvoiceCharge
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True, kw_only=True)
class ReissueRequest:
    """The charge that is being canceled, and the id and terms of the next charge.

    `requested_at` (account's clock) is when the cancellation was requested. `in_progress_until` (real time) is when the
    process that serves the merchant's request stops waiting for the cancellation.
    """

    invoice_id: UUID
    charge_id: UUID
    next_charge_id: UUID
    terms: ChargeTerms
    requested_at: datetime
    in_progress_until: datetime


async def save(tx: Tx, request: ReissueRequest) -> None:
    """Store a request. It replaces an older request of the invoice."""
    await tx.execute(
        """
        INSERT INTO reissue_request AS r (account_id, invoice_id, charge_id, next_charge_id, payment_method,
            installments, due_date, requested_at, in_progress_until)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (account_id, invoice_id) DO UPDATE
        SET charge_id = EXCLUDED.charge_id, next_charge_id = EXCLUDED.next_charge_id,
            payment_method = EXCLUDED.payment_method, installments = EXCLUDED.installments,
            due_date = EXCLUDED.due_date, requested_at = EXCLUDED.requested_at,
            in_progress_until = EXCLUDED.in_progress_until
        WHERE r.account_id = $1
        """,
        request.invoice_id,
        request.charge_id,
        request.next_charge_id,
        request.terms.payment_method,
        request.terms.installments,
        request.terms.due_date,
        request.requested_at,
        request.in_progress_until,
    )


async def of_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, ReissueRequest]:
    rows = await tx.fetch(
        """
        SELECT r.invoice_id, r.charge_id, r.next_charge_id, r.payment_method, r.installments, r.due_date,
            r.requested_at, r.in_progress_until
        FROM reissue_request r WHERE r.account_id = $1 AND r.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    )
    return {row["invoice_id"]: record(ReissueRequest, row, terms=record(ChargeTerms, row)) for row in rows}


async def remove(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    await tx.execute(
        "DELETE FROM reissue_request r WHERE r.account_id = $1 AND r.invoice_id = ANY($2::uuid[])",
        invoice_ids,
    )


async def insert_planned(tx: Tx, charge: InvoiceCharge) -> None:
    """Insert the charge that issuance will send."""
    await tx.execute(
        """
        INSERT INTO charge (account_id, charge_id, invoice_id, number, connection_id, stage, amount_cents, currency,
            payment_method, installments, due_date, created_at, first_sent_at, sent_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        """,
        charge.charge_id,
        charge.invoice_id,
        charge.number,
        charge.connection_id,
        charge.stage,
        charge.amount_cents,
        charge.currency,
        charge.payment_method,
        charge.installments,
        charge.due_date,
        charge.created_at,
        charge.first_sent_at,
        charge.sent_at,
    )
