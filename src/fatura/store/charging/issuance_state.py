"""SQL for requests to cancel an invoice (D-27), retry issuance (D-34), reissue (D-51) and record a payment (D-52)."""

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.charge import InvoiceCharge
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.store import leases
from fatura.store.charging import charges
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True)
class IssuanceState:
    """What issuance needs to know about a locked invoice; `charge` is the invoice's newest charge."""

    invoice_id: UUID
    status: InvoiceStatus
    connection_id: UUID
    due_date: date
    payment_method: PaymentMethod
    installments: int | None
    total_cents: int | None
    currency: str
    lease_until: datetime | None
    retry_paced_until: datetime | None
    charge: InvoiceCharge | None

    def is_leased(self, real_now: datetime) -> bool:
        return self.lease_until is not None and real_now < self.lease_until <= leases.horizon(real_now)


async def lock(tx: Tx, invoice_id: UUID) -> IssuanceState | None:
    """Lock an invoice, then read its newest charge."""
    row = await tx.fetchrow(
        """
        SELECT v.invoice_id, v.status, v.connection_id, v.due_date, v.payment_method, v.installments, v.total_cents,
            v.currency, v.lease_until, v.retry_paced_until
        FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = $2 FOR NO KEY UPDATE
        """,
        invoice_id,
    )
    if row is None:
        return None
    newest = await charges.newest(tx, [invoice_id])
    return record(IssuanceState, row, charge=newest.get(invoice_id))


async def make_due(tx: Tx, invoice_id: UUID, *, now: datetime, lease_until: datetime | None) -> None:
    """Make a locked `ready` invoice due, clear its error, and store `lease_until`. None ends the invoice's lease."""
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = $3, lease_until = $4,
            issue_error_code = NULL, issue_error_detail = NULL, issue_error_at = NULL
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.status = 'ready'
        """,
        invoice_id,
        now,
        lease_until,
    )


async def pace_retries(tx: Tx, invoice_id: UUID, *, until: datetime) -> None:
    await tx.execute(
        "UPDATE invoice v SET retry_paced_until = $3 WHERE v.account_id = $1 AND v.invoice_id = $2",
        invoice_id,
        until,
    )
