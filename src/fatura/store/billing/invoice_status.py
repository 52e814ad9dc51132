"""SQL that writes an invoice's status. Only `usecases.billing.invoice_moves` may call these functions (D-28)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.db import Tx, check_rows


@dataclass(frozen=True, slots=True)
class LockedInvoice:
    invoice_id: UUID
    status: InvoiceStatus
    total_cents: int | None
    has_charge: bool


@dataclass(frozen=True, slots=True)
class Move:
    """The new state of an invoice, and the values to store.

    If a field is None, the stored value is kept. But None as `next_attempt_at` means that nothing is scheduled. With
    `is_dispute_cleared`, `disputed_at` becomes null. With `keeps_schedule`, the stored `next_attempt_at`, lease and
    issue error are kept.
    """

    invoice_id: UUID
    status: InvoiceStatus
    total_cents: int | None
    gateway_invoice_id: str | None
    charge_due_date: date | None
    issued_at: datetime | None
    paid_at: datetime | None
    refunded_at: datetime | None
    disputed_at: datetime | None
    is_dispute_cleared: bool
    canceled_at: datetime | None
    unexpected_payment_at: datetime | None
    next_attempt_at: datetime | None
    keeps_schedule: bool


async def lock(tx: Tx, invoice_ids: Sequence[UUID]) -> Sequence[LockedInvoice]:
    """Lock invoices in id order."""
    return await tx.fetch_as(
        LockedInvoice,
        """
        SELECT v.invoice_id, v.status, v.total_cents, v.gateway_invoice_id IS NOT NULL AS has_charge
        FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) ORDER BY v.invoice_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )


async def write(tx: Tx, moves: Sequence[Move]) -> None:
    """Write the new states.

    Without `keeps_schedule`, also end the lease, remove the issue error and set the schedule. A move to `ready` also
    clears the failures of issuance. The stored instant of the first refund, dispute or unexpected payment is kept
    when another one follows.
    """
    touched = await tx.execute(
        """
        UPDATE invoice v SET status = u.status,
            total_cents = coalesce(u.total_cents, v.total_cents),
            gateway_invoice_id = coalesce(u.gateway_invoice_id, v.gateway_invoice_id),
            charge_due_date = coalesce(u.charge_due_date, v.charge_due_date),
            issued_at = coalesce(u.issued_at, v.issued_at),
            paid_at = coalesce(u.paid_at, v.paid_at),
            refunded_at = coalesce(v.refunded_at, u.refunded_at),
            disputed_at = CASE WHEN NOT u.is_dispute_cleared THEN coalesce(v.disputed_at, u.disputed_at) END,
            canceled_at = coalesce(u.canceled_at, v.canceled_at),
            unexpected_payment_at = coalesce(v.unexpected_payment_at, u.unexpected_payment_at),
            issue_error_code = CASE WHEN u.keeps_schedule THEN v.issue_error_code END,
            issue_error_detail = CASE WHEN u.keeps_schedule THEN v.issue_error_detail END,
            issue_error_at = CASE WHEN u.keeps_schedule THEN v.issue_error_at END,
            issue_failures = CASE WHEN u.status = 'ready' THEN 0 ELSE v.issue_failures END,
            issue_failing_since = CASE WHEN u.status <> 'ready' THEN v.issue_failing_since END,
            issue_delay_emitted = u.status <> 'ready' AND v.issue_delay_emitted,
            next_attempt_at = CASE WHEN u.keeps_schedule THEN v.next_attempt_at ELSE u.next_attempt_at END,
            lease_until = CASE WHEN u.keeps_schedule THEN v.lease_until END
        FROM unnest($2::uuid[], $3::text[], $4::text[], $5::date[], $6::timestamptz[], $7::timestamptz[],
                $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[],
                $13::int8[], $14::bool[], $15::bool[])
            AS u (invoice_id, status, gateway_invoice_id, charge_due_date, issued_at, paid_at, refunded_at,
                disputed_at, canceled_at, unexpected_payment_at, next_attempt_at, total_cents, is_dispute_cleared,
                keeps_schedule)
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.invoice_id = u.invoice_id
        """,
        [move.invoice_id for move in moves],
        [move.status for move in moves],
        [move.gateway_invoice_id for move in moves],
        [move.charge_due_date for move in moves],
        [move.issued_at for move in moves],
        [move.paid_at for move in moves],
        [move.refunded_at for move in moves],
        [move.disputed_at for move in moves],
        [move.canceled_at for move in moves],
        [move.unexpected_payment_at for move in moves],
        [move.next_attempt_at for move in moves],
        [move.total_cents for move in moves],
        [move.is_dispute_cleared for move in moves],
        [move.keeps_schedule for move in moves],
    )
    check_rows(touched, len(moves))
