"""SQL of `payment_request`: manual payments that wait for the cancellation of a charge (D-52)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.payments import ManualMethod
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentRequest:
    """The payment, with the id of its future ledger entry, and the charge that is being canceled.

    If `amount_cents` is None, the payment is for the amount that is open when the payment is recorded.
    `in_progress_until` (real time) is when the request's process stops waiting for the cancellation.
    """

    invoice_id: UUID
    charge_id: UUID
    payment_entry_id: UUID
    amount_cents: int | None
    occurred_at: datetime
    method: ManualMethod
    reference: str | None
    note: str | None
    in_progress_until: datetime


async def save(tx: Tx, request: PaymentRequest) -> None:
    """Store a request. It replaces an older request of the invoice."""
    await tx.execute(
        """
        INSERT INTO payment_request AS r (account_id, invoice_id, charge_id, payment_entry_id, amount_cents,
            occurred_at, method, reference, note, in_progress_until)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (account_id, invoice_id) DO UPDATE
        SET charge_id = EXCLUDED.charge_id, payment_entry_id = EXCLUDED.payment_entry_id,
            amount_cents = EXCLUDED.amount_cents, occurred_at = EXCLUDED.occurred_at, method = EXCLUDED.method,
            reference = EXCLUDED.reference, note = EXCLUDED.note, in_progress_until = EXCLUDED.in_progress_until
        WHERE r.account_id = $1
        """,
        request.invoice_id,
        request.charge_id,
        request.payment_entry_id,
        request.amount_cents,
        request.occurred_at,
        request.method,
        request.reference,
        request.note,
        request.in_progress_until,
    )


async def of_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, PaymentRequest]:
    found = await tx.fetch_as(
        PaymentRequest,
        """
        SELECT r.invoice_id, r.charge_id, r.payment_entry_id, r.amount_cents, r.occurred_at, r.method, r.reference,
            r.note, r.in_progress_until
        FROM payment_request r WHERE r.account_id = $1 AND r.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    )
    return {request.invoice_id: request for request in found}


async def remove(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    await tx.execute(
        "DELETE FROM payment_request r WHERE r.account_id = $1 AND r.invoice_id = ANY($2::uuid[])",
        invoice_ids,
    )
