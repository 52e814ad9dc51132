"""What a restore from a backup needs: frozen accounts, and the charges that the gateways hold beyond the tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.db import Tx, fields


async def lock_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    """Hold invoices against all workers until the commit, in id order."""
    await tx.execute(
        """
        SELECT FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) ORDER BY v.invoice_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )


@dataclass(frozen=True, slots=True)
class CandidateInvoice:
    """An invoice that a gateway's charge may belong to, with its newest attempt, if any."""

    invoice_id: UUID
    connection_id: UUID
    status: InvoiceStatus
    due_date: date
    gateway_invoice_id: str | None
    attempt: int | None
    is_open: bool
    known_charge_ids: Sequence[str]


async def find_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, CandidateInvoice]:
    """Return those of the invoices that exist; `is_open`: the newest attempt may still get a charge."""
    rows = await tx.fetch(
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
    return {
        row["invoice_id"]: CandidateInvoice(**fields(row, status=InvoiceStatus(row["status"])))
        for row in rows
    }


@dataclass(frozen=True, slots=True)
class FoundAttempt:
    """An attempt as a charge shows it that the gateway holds."""

    invoice_id: UUID
    attempt: int
    connection_id: UUID
    amount_cents: int
    charge_due_date: date
    charge_ids: Sequence[str]


async def add_charge(tx: Tx, invoice_id: UUID, attempt: int, *, charge_id: str) -> None:
    """Let an open attempt be asked after by the charge too; whatever was thought of it, it is not sent again."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = 'sending', known_charge_ids = a.known_charge_ids || $4::text
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.attempt = $3 AND NOT $4 = ANY (a.known_charge_ids)
        """,
        invoice_id,
        attempt,
        charge_id,
    )


async def insert_attempt(tx: Tx, found: FoundAttempt, *, sent_at: datetime, real_now: datetime) -> None:
    """Store an attempt that the database has lost, or never knew under this number."""
    await tx.execute(
        """
        INSERT INTO charge_attempt (account_id, invoice_id, attempt, connection_id, state, amount_cents,
            charge_due_date, first_sent_at, sent_at, known_charge_ids)
        VALUES ($1, $2, $3, $4, 'sending', $5, $6, $7, $8, $9)
        """,
        found.invoice_id,
        found.attempt,
        found.connection_id,
        found.amount_cents,
        found.charge_due_date,
        real_now,
        sent_at,
        list(found.charge_ids),
    )


async def make_due(tx: Tx, invoice_id: UUID, *, now: datetime) -> None:
    """Have a `ready` invoice's charge asked after as soon as the account is released."""
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = $3
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.status = 'ready'
        """,
        invoice_id,
        now,
    )


@dataclass(frozen=True, slots=True)
class BilledCycles:
    """How far a subscription is billed."""

    subscription_id: UUID
    cycle_count: int


async def billed_cycles(tx: Tx, connection_id: UUID, *, after: UUID, limit: int) -> Sequence[BilledCycles]:
    """Return the next subscriptions of a connection, by id, after one."""
    rows = await tx.fetch(
        """
        SELECT s.subscription_id, s.cycle_count FROM subscription s
        WHERE s.account_id = $1 AND s.connection_id = $2 AND s.subscription_id > $3
        ORDER BY s.subscription_id LIMIT $4
        """,
        connection_id,
        after,
        limit,
    )
    return [BilledCycles(**row) for row in rows]


async def invoice_of(tx: Tx, subscription_id: UUID, cycle: int) -> UUID | None:
    """Return the invoice of a cycle, under whatever id it was generated."""
    return await tx.fetchval(
        "SELECT v.invoice_id FROM invoice v WHERE v.account_id = $1 AND v.subscription_id = $2 AND v.cycle = $3",
        subscription_id,
        cycle,
    )


async def is_active(tx: Tx, subscription_id: UUID) -> bool:
    """Hold a subscription until the commit, and say whether its next cycles will be billed."""
    return await tx.fetchval(
        """
        SELECT s.status = 'active' FROM subscription s
        WHERE s.account_id = $1 AND s.subscription_id = $2 FOR NO KEY UPDATE
        """,
        subscription_id,
    )
