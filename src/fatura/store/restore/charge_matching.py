"""SQL that matches a gateway's charges with the invoices, charges and cycles of a restored database (D-123)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.charge import InvoiceCharge
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class CandidateInvoice:
    """An invoice to which a charge may belong, with the invoice's newest charge.

    `is_open` is true while the gateway may still create the newest charge. `is_parked` is true if a person must decide
    about the newest charge. `gateway_invoice_id` is the gateway's id of the newest charge. `gateway_ids` are the
    gateway's ids of all charges of the invoice.
    """

    invoice_id: UUID
    connection_id: UUID
    status: InvoiceStatus
    due_date: date
    payment_method: PaymentMethod
    installments: int | None
    charge_id: UUID | None
    number: int | None
    is_open: bool
    is_parked: bool
    gateway_invoice_id: str | None
    gateway_ids: Sequence[str]
    known_charge_ids: Sequence[str]

    def may_adopt(self, gateway_id: str) -> bool:
        """Return whether issuance will look up the gateway's charge `gateway_id` and can adopt it."""
        is_closed = self.status in {InvoiceStatus.PAID, InvoiceStatus.CANCELED}
        return self.is_open and not is_closed and gateway_id in self.known_charge_ids


async def find_invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, CandidateInvoice]:
    """Return the invoices with these ids, by id. Ids without an invoice are left out."""
    found = await tx.fetch_as(
        CandidateInvoice,
        """
        SELECT DISTINCT ON (v.invoice_id) v.invoice_id, v.connection_id, v.status, v.due_date, v.payment_method,
            v.installments, c.charge_id, c.number, c.gateway_invoice_id,
            coalesce(c.stage IN ('planned', 'sending', 'unknown', 'absent', 'parked'), false) AS is_open,
            coalesce(c.stage = 'parked', false) AS is_parked,
            ARRAY(
                SELECT o.gateway_invoice_id FROM charge o
                WHERE o.account_id = $1 AND o.invoice_id = v.invoice_id AND o.gateway_invoice_id IS NOT NULL
            ) AS gateway_ids,
            coalesce(c.known_charge_ids, '{}') AS known_charge_ids
        FROM invoice v
        LEFT JOIN charge c ON c.account_id = $1 AND c.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
        ORDER BY v.invoice_id, c.number DESC
        """,
        invoice_ids,
    )
    return {invoice.invoice_id: invoice for invoice in found}


@dataclass(frozen=True, slots=True)
class ReplacedCharge:
    invoice_id: UUID
    gateway_invoice_id: str


async def replaced_charges(tx: Tx, connection_id: UUID) -> Sequence[ReplacedCharge]:
    """Return a connection's confirmed charges of `ready` invoices, for which issuance could create another charge.

    An invoice that will adopt a found charge is left out, because issuance sends no request for it. The charges are
    ordered by invoice, and the charges of an invoice by number.
    """
    return await tx.fetch_as(
        ReplacedCharge,
        """
        SELECT c.invoice_id, c.gateway_invoice_id
        FROM invoice v JOIN charge c ON c.account_id = $1 AND c.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND v.status = 'ready' AND c.connection_id = $2 AND c.gateway_invoice_id IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM charge o
                WHERE o.account_id = $1 AND o.invoice_id = v.invoice_id AND o.gateway_invoice_id IS NULL
                    AND o.known_charge_ids <> '{}' AND o.stage <> 'failed'
                    AND coalesce(o.error_code, '') <> 'charge_missing'
            )
        ORDER BY c.invoice_id, c.number
        """,
        connection_id,
    )


async def add_charge(tx: Tx, charge_id: UUID, *, gateway_id: str, number: int) -> None:
    """Add the gateway's id of a found charge to the stored charge that may be the same charge.

    Issuance then looks up the found charge by this id, and does not send the request again. The stored charge gets the
    `number` of the found charge if this number is higher, so that no later charge repeats a reference. The number of
    empty look-ups is reset to 0.
    """
    await tx.execute(
        """
        UPDATE charge c SET stage = 'unknown', known_charge_ids = c.known_charge_ids || $3::text,
            number = greatest(c.number, $4), empty_lookups = 0, looked_up_at = NULL
        WHERE c.account_id = $1 AND c.charge_id = $2 AND NOT $3 = ANY (c.known_charge_ids)
        """,
        charge_id,
        gateway_id,
        number,
    )


async def reopen(tx: Tx, charge_id: UUID) -> None:
    """Make a parked charge `unknown`, so that issuance looks up its found charges once more."""
    await tx.execute(
        """
        UPDATE charge c SET stage = 'unknown', error_code = NULL, error_detail = NULL, empty_lookups = 0,
            looked_up_at = NULL
        WHERE c.account_id = $1 AND c.charge_id = $2 AND c.stage = 'parked'
        """,
        charge_id,
    )


async def insert_charge(tx: Tx, charge: InvoiceCharge) -> None:
    """Insert a charge that the restored database lacks, with the gateway's ids of the charges found for it.

    If the customer is erased, set `erased`, so that the charge stores no pay data later (D-229).
    """
    await tx.execute(
        """
        INSERT INTO charge (account_id, charge_id, invoice_id, number, connection_id, stage, amount_cents, currency,
            payment_method, installments, due_date, created_at, first_sent_at, sent_at, known_charge_ids, erased)
        SELECT v.account_id, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, u.email IS NULL
        FROM invoice v JOIN subscription s ON s.subscription_id = v.subscription_id
        JOIN customer u ON u.customer_id = s.customer_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND u.account_id = $1 AND v.invoice_id = $3
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
        list(charge.known_charge_ids),
    )


async def make_due(tx: Tx, invoice_id: UUID, *, now: datetime) -> None:
    """Make a `ready` invoice due, so that issuance looks up its found charges when the account is no longer frozen."""
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
    subscription_id: UUID
    connection_id: UUID
    cycle_count: int


async def billed_cycles(tx: Tx, *, after: UUID, limit: int) -> Sequence[BilledCycles]:
    """Return how many cycles were billed for each subscription of a page. The subscriptions are ordered by id."""
    return await tx.fetch_as(
        BilledCycles,
        """
        SELECT s.subscription_id, s.connection_id, s.cycle_count FROM subscription s
        WHERE s.account_id = $1 AND s.subscription_id > $2
        ORDER BY s.subscription_id LIMIT $3
        """,
        after,
        limit,
    )


async def invoice_of(tx: Tx, subscription_id: UUID, cycle: int) -> UUID | None:
    """Return the id of a cycle's invoice, or None. The invoice may have had another id before a restore."""
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
