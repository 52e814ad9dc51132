"""An invoice held for what a person asks of it: to be canceled (D-27), or to be issued again (D-34)."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.charging import AttemptState
from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class HeldInvoice:
    """What decides whether a person's request can be met; `attempt` is the state of the newest attempt, if any."""

    status: InvoiceStatus
    connection_id: UUID
    gateway_invoice_id: str | None
    lease_until: datetime | None
    attempt: AttemptState | None

    def is_leased(self, real_now: datetime) -> bool:
        """Say whether a worker owns the invoice at this moment of real time."""
        return self.lease_until is not None and self.lease_until > real_now


async def hold(tx: Tx, invoice_id: UUID) -> HeldInvoice | None:
    """Hold an invoice against all workers until the commit, and then look at its attempts."""
    row = await tx.fetchrow(
        """
        SELECT v.status, v.connection_id, v.gateway_invoice_id, v.lease_until FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = $2 FOR NO KEY UPDATE
        """,
        invoice_id,
    )
    if row is None:
        return None
    state = await tx.fetchval(
        """
        SELECT a.state FROM charge_attempt a
        WHERE a.account_id = $1 AND a.invoice_id = $2 ORDER BY a.attempt DESC LIMIT 1
        """,
        invoice_id,
    )
    return HeldInvoice(
        status=InvoiceStatus(row["status"]),
        connection_id=row["connection_id"],
        gateway_invoice_id=row["gateway_invoice_id"],
        lease_until=row["lease_until"],
        attempt=None if state is None else AttemptState(state),
    )


async def give_up_parked(tx: Tx, invoice_id: UUID) -> None:
    """Close an attempt that waited for a person, so that the next number may be sent.

    One whose charges are known is asked after by them again: nobody needs to be believed about those.
    """
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = CASE WHEN a.known_charge_ids = '{}' THEN 'failed' ELSE 'sending' END
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.state = 'parked'
        """,
        invoice_id,
    )


async def make_due(tx: Tx, invoice_id: UUID, *, now: datetime, lease_until: datetime | None) -> None:
    """Have a held `ready` invoice issued at once: by whoever leases it here, or (null) by any worker."""
    await tx.execute(
        """
        UPDATE invoice v SET next_attempt_at = $3, lease_until = $4
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.status = 'ready'
        """,
        invoice_id,
        now,
        lease_until,
    )
