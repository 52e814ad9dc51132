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

    If the merchant gave no amount, `amount_cents` is what was open when the request was stored, and `at_most_open` is
    true. The payment is then recorded with at most the amount that is still open. `requested_at` (account's clock) is
    when the cancellation was requested. `in_progress_until` (real time) is when the process that serves the merchant's
    request stops waiting for the cancellation.
    """

    invoice_id: UUID
    charge_id: UUID
    payment_entry_id: UUID
    amount_cents: int
    at_most_open: bool
    occurred_at: datetime
    method: ManualMethod
    reference: str | None
    note: str | None
    requested_at: datetime
    in_progress_until: datetime

    def recorded_cents(self, *, open_cents: int) -> int:
        """Return the amount to record. Only an amount that the merchant gave may exceed `open_cents`."""
        return min(self.amount_cents, open_cents) if self.at_most_open else self.amount_cents


async def save(tx: Tx, request: PaymentRequest) -> None:
    """Store a request. It replaces an older request of the invoice."""
    await tx.execute(
        """
        INSERT INTO payment_request AS r (account_id, invoice_id, charge_id, payment_entry_id, amount_cents,
            at_most_open, occurred_at, method, reference, note, requested_at, in_progress_until)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        ON CONFLICT (account_id, invoice_id) DO UPDATE
        SET charge_id = EXCLUDED.charge_id, payment_entry_id = EXCLUDED.payment_entry_id,
            amount_cents = EXCLUDED.amount_cents, at_most_open = EXCLUDED.at_most_open,
            occurred_at = EXCLUDED.occurred_at, method = EXCLUDED.method, reference = EXCLUDED.reference,
            note = EXCLUDED.note, requested_at = EXCLUDED.requested_at, in_progress_until = EXCLUDED.in_progress_until
        WHERE r.account_id = $1
        """,
        request.invoice_id,
        request.charge_id,
        request.payment_entry_id,
        request.amount_cents,
        request.at_most_open,
        request.occurred_at,
        request.method,
        request.reference,
        request.note,
        request.requested_at,
        request.in_progress_until,
    )


async def of_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, PaymentRequest]:
    found = await tx.fetch_as(
        PaymentRequest,
        """
        SELECT r.invoice_id, r.charge_id, r.payment_entry_id, r.amount_cents, r.at_most_open, r.occurred_at, r.method,
            r.reference, r.note, r.requested_at, r.in_progress_until
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
