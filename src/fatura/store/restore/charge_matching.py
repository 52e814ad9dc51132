"""SQL that matches a gateway's charges with the invoices, attempts and cycles of a restored database (D-123)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.charging import ChargeAttempt
from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class CandidateInvoice:
    """An invoice to match charges with; `is_open` is true while its newest attempt may still get a charge."""

    invoice_id: UUID
    connection_id: UUID
    status: InvoiceStatus
    due_date: date
    gateway_invoice_id: str | None
    attempt: int | None
    is_open: bool
    known_charge_ids: Sequence[str]


async def find_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, CandidateInvoice]:
    """Return those of the invoices that exist, by id."""
    found = await tx.fetch_as(
        CandidateInvoice,
        """
        SELECT DISTINCT ON (v.invoice_id) v.invoice_id, v.connection_id, v.status, v.due_date, v.gateway_invoice_id,
            a.attempt, coalesce(a.state IN ('sending', 'absent', 'parked'), false) AS is_open,
            coalesce(a.known_charge_ids, '{}') AS known_charge_ids
        FROM invoice v
        LEFT JOIN charge_attempt a ON a.account_id = $1 AND a.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
        ORDER BY v.invoice_id, a.attempt DESC
        """,
        invoice_ids,
    )
    return {invoice.invoice_id: invoice for invoice in found}


async def add_charge(tx: Tx, invoice_id: UUID, attempt: int, *, charge_id: str) -> None:
    """Add a known charge to an open attempt, so that it is looked up instead of sent again."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = 'sending', known_charge_ids = a.known_charge_ids || $4::text
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.attempt = $3 AND NOT $4 = ANY (a.known_charge_ids)
        """,
        invoice_id,
        attempt,
        charge_id,
    )


async def insert_attempt(tx: Tx, attempt: ChargeAttempt) -> None:
    """Insert an attempt that is missing in the restored database, with its known charges."""
    await tx.execute(
        """
        INSERT INTO charge_attempt (account_id, invoice_id, attempt, connection_id, state, amount_cents,
            charge_due_date, first_sent_at, sent_at, known_charge_ids)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        """,
        attempt.invoice_id,
        attempt.number,
        attempt.connection_id,
        attempt.state,
        attempt.amount_cents,
        attempt.charge_due_date,
        attempt.first_sent_at,
        attempt.sent_at,
        list(attempt.known_charge_ids),
    )


async def make_due(tx: Tx, invoice_id: UUID, *, now: datetime) -> None:
    """Make a `ready` invoice due, so that its known charge is looked up when the account is no longer frozen."""
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = $3,
            issue_error_code = NULL, issue_error_detail = NULL, issue_error_at = NULL
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.status = 'ready'
        """,
        invoice_id,
        now,
    )


@dataclass(frozen=True, slots=True)
class BilledCycles:
    """A subscription and the number of its billed cycles."""

    subscription_id: UUID
    cycle_count: int


async def billed_cycles(tx: Tx, connection_id: UUID, *, after: UUID, limit: int) -> Sequence[BilledCycles]:
    """Return a page of a connection's subscriptions, ordered by id."""
    return await tx.fetch_as(
        BilledCycles,
        """
        SELECT s.subscription_id, s.cycle_count FROM subscription s
        WHERE s.account_id = $1 AND s.connection_id = $2 AND s.subscription_id > $3
        ORDER BY s.subscription_id LIMIT $4
        """,
        connection_id,
        after,
        limit,
    )


async def invoice_of(tx: Tx, subscription_id: UUID, cycle: int) -> UUID | None:
    """Return the id of a cycle's invoice; it may differ from the id before the restore."""
    return await tx.fetchval(
        "SELECT v.invoice_id FROM invoice v WHERE v.account_id = $1 AND v.subscription_id = $2 AND v.cycle = $3",
        subscription_id,
        cycle,
    )


async def is_active(tx: Tx, subscription_id: UUID) -> bool:
    """Lock a subscription and return whether it is active."""
    return await tx.fetchval(
        """
        SELECT s.status = 'active' FROM subscription s
        WHERE s.account_id = $1 AND s.subscription_id = $2 FOR NO KEY UPDATE
        """,
        subscription_id,
    )
