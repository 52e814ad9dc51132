"""SQL of `merchant_request`: requests of merchants that wait until the gateway has canceled a charge (D-171)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from fatura.domain.audit import Origin
from fatura.domain.charge import ChargeTerms
from fatura.domain.payments import ManualMethod
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualPayment:
    """A payment that the merchant received without the gateway (D-52).

    If the merchant gave no amount, `amount_cents` is the open amount at the time of the request, and `at_most_open` is
    true. The payment is then recorded with at most the amount that is still open.
    """

    amount_cents: int
    at_most_open: bool
    occurred_at: datetime
    method: ManualMethod
    reference: str | None
    note: str | None

    def recorded_cents(self, *, open_cents: int) -> int:
        """Return the amount to record. Only an amount that the merchant gave may exceed `open_cents`."""
        return min(self.amount_cents, open_cents) if self.at_most_open else self.amount_cents


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantRequest:
    """A reissue, a manual payment or a cancellation of an invoice.

    A reissue has the `terms` of the next charge, and a manual payment has `payment`; a cancellation has neither.
    `request_id` is the id that the next charge or the payment's ledger entry will have. `number` orders the requests
    of an invoice by the time at which each was sent or most recently repeated. `asked_by` is for the audit entry, which
    is added when the request takes effect. `requested_at` (account's clock) is when the cancellation of the charge was
    requested. `in_progress_until` (real time) is when the process that serves the merchant's request stops waiting for
    the gateway.
    """

    invoice_id: UUID
    charge_id: UUID
    request_id: UUID
    number: int
    requested_at: datetime
    in_progress_until: datetime
    asked_by: Origin
    terms: ChargeTerms | None = None
    payment: ManualPayment | None = None

    @property
    def is_cancellation(self) -> bool:
        return self.terms is None and self.payment is None


async def save(tx: Tx, request: MerchantRequest) -> None:
    """Store a request, or change the stored request with the same id."""
    terms, payment = request.terms, request.payment
    await tx.execute(
        """
        INSERT INTO merchant_request AS r (account_id, invoice_id, charge_id, request_id, number, requested_at,
            in_progress_until, payment_method, installments, due_date, amount_cents, at_most_open, occurred_at,
            method, reference, note, asked_by)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
        ON CONFLICT (account_id, request_id) DO UPDATE
        SET number = EXCLUDED.number, charge_id = EXCLUDED.charge_id, requested_at = EXCLUDED.requested_at,
            in_progress_until = EXCLUDED.in_progress_until, payment_method = EXCLUDED.payment_method,
            installments = EXCLUDED.installments, due_date = EXCLUDED.due_date,
            amount_cents = EXCLUDED.amount_cents, at_most_open = EXCLUDED.at_most_open,
            occurred_at = EXCLUDED.occurred_at, method = EXCLUDED.method, reference = EXCLUDED.reference,
            note = EXCLUDED.note, asked_by = EXCLUDED.asked_by
        WHERE r.account_id = $1
        """,
        request.invoice_id,
        request.charge_id,
        request.request_id,
        request.number,
        request.requested_at,
        request.in_progress_until,
        terms and terms.payment_method,
        terms and terms.installments,
        terms and terms.due_date,
        payment and payment.amount_cents,
        payment and payment.at_most_open,
        payment and payment.occurred_at,
        payment and payment.method,
        payment and payment.reference,
        payment and payment.note,
        msgspec.json.encode(request.asked_by).decode(),
    )


async def of_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, list[MerchantRequest]]:
    """Return the requests of each invoice, newest first, by invoice id. Invoices without requests are left out."""
    rows = await tx.fetch(
        """
        SELECT r.invoice_id, r.charge_id, r.request_id, r.number, r.requested_at, r.in_progress_until,
            r.payment_method, r.installments, r.due_date, r.amount_cents, r.at_most_open, r.occurred_at,
            r.method, r.reference, r.note, r.asked_by
        FROM merchant_request r WHERE r.account_id = $1 AND r.invoice_id = ANY($2::uuid[])
        ORDER BY r.number DESC
        """,
        invoice_ids,
    )
    found: dict[UUID, list[MerchantRequest]] = {}
    for row in rows:
        terms = None if row["payment_method"] is None else record(ChargeTerms, row)
        payment = None if row["amount_cents"] is None else record(ManualPayment, row)
        asked_by = msgspec.json.decode(row["asked_by"], type=Origin)
        request = record(MerchantRequest, row, terms=terms, payment=payment, asked_by=asked_by)
        found.setdefault(request.invoice_id, []).append(request)
    return found


async def remove(tx: Tx, request_ids: Sequence[UUID]) -> None:
    await tx.execute(
        "DELETE FROM merchant_request r WHERE r.account_id = $1 AND r.request_id = ANY($2::uuid[])",
        request_ids,
    )


async def remove_all(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    await tx.execute(
        "DELETE FROM merchant_request r WHERE r.account_id = $1 AND r.invoice_id = ANY($2::uuid[])",
        invoice_ids,
    )
