"""SQL that writes an invoice's status; only `usecases.billing.invoice_moves` may call it (D-28)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class LockedInvoice:
    """A locked invoice; `stamped` names the columns of `_ONCE` that are set: their facts were already reported."""

    invoice_id: UUID
    status: InvoiceStatus
    total_cents: int | None
    stamped: frozenset[str]


@dataclass(frozen=True, slots=True)
class Move:
    """The new state of an invoice and the columns to set; None leaves a column unchanged."""

    invoice_id: UUID
    status: InvoiceStatus
    total_cents: int | None
    gateway_invoice_id: str | None
    charge_due_date: date | None
    issued_at: datetime | None
    paid_at: datetime | None
    refunded_at: datetime | None
    disputed_at: datetime | None
    canceled_at: datetime | None
    unexpected_payment_at: datetime | None
    next_attempt_at: datetime | None


_ONCE = ("refunded_at", "disputed_at", "unexpected_payment_at")


async def lock(tx: Tx, invoice_ids: Sequence[UUID]) -> Sequence[LockedInvoice]:
    """Lock invoices in id order."""
    rows = await tx.fetch(
        """
        SELECT v.invoice_id, v.status, v.total_cents, v.refunded_at, v.disputed_at, v.unexpected_payment_at
        FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) ORDER BY v.invoice_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )
    return [
        LockedInvoice(
            row["invoice_id"],
            InvoiceStatus(row["status"]),
            row["total_cents"],
            frozenset(column for column in _ONCE if row[column] is not None),
        )
        for row in rows
    ]


async def write(tx: Tx, moves: Sequence[Move]) -> None:
    """Write the new states; also end the leases, remove issue errors and set `next_attempt_at`."""
    touched = await tx.execute(
        """
        UPDATE invoice v SET status = u.status,
            total_cents = coalesce(u.total_cents, v.total_cents),
            gateway_invoice_id = coalesce(u.gateway_invoice_id, v.gateway_invoice_id),
            charge_due_date = coalesce(u.charge_due_date, v.charge_due_date),
            issued_at = coalesce(u.issued_at, v.issued_at),
            paid_at = coalesce(u.paid_at, v.paid_at),
            refunded_at = coalesce(u.refunded_at, v.refunded_at),
            disputed_at = coalesce(u.disputed_at, v.disputed_at),
            canceled_at = coalesce(u.canceled_at, v.canceled_at),
            unexpected_payment_at = coalesce(u.unexpected_payment_at, v.unexpected_payment_at),
            issue_error_code = NULL, issue_error_detail = NULL, issue_error_at = NULL,
            next_attempt_at = u.next_attempt_at,
            lease_until = NULL
        FROM unnest($2::uuid[], $3::text[], $4::text[], $5::date[], $6::timestamptz[], $7::timestamptz[],
                $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[],
                $13::int8[])
            AS u (invoice_id, status, gateway_invoice_id, charge_due_date, issued_at, paid_at, refunded_at,
                disputed_at, canceled_at, unexpected_payment_at, next_attempt_at, total_cents)
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
    )
    assert touched == len(moves), (touched, len(moves))
