"""SQL for a person's request to cancel an invoice (D-27) or to issue it again (D-34)."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.charging import AttemptState
from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True)
class IssuanceState:
    """An invoice's state for issuing; `attempt` is the state of its newest charge attempt."""

    status: InvoiceStatus
    connection_id: UUID
    gateway_invoice_id: str | None
    lease_until: datetime | None
    attempt: AttemptState | None

    def is_leased(self, real_now: datetime) -> bool:
        return self.lease_until is not None and self.lease_until > real_now


async def lock(tx: Tx, invoice_id: UUID) -> IssuanceState | None:
    """Lock an invoice, then read its newest attempt."""
    row = await tx.fetchrow(
        """
        SELECT v.status, v.connection_id, v.gateway_invoice_id, v.lease_until FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = $2 FOR NO KEY UPDATE
        """,
        invoice_id,
    )
    if row is None:
        return None
    attempt = await tx.fetchval(
        """
        SELECT a.state FROM charge_attempt a
        WHERE a.account_id = $1 AND a.invoice_id = $2 ORDER BY a.attempt DESC LIMIT 1
        """,
        invoice_id,
    )
    return record(IssuanceState, row, attempt=attempt)


async def make_due(tx: Tx, invoice_id: UUID, *, now: datetime, lease_until: datetime | None) -> None:
    """Make a locked `ready` invoice due. With `lease_until`, the caller leases it, so no other worker claims it."""
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
