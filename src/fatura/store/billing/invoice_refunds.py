"""SQL that reads the refunds that `GET /v1/invoices/{invoiceId}` shows (D-151)."""

from collections.abc import Sequence
from uuid import UUID

from fatura.domain.refunds import RefundRequest
from fatura.store.db import Tx


async def of_invoice(tx: Tx, invoice_id: UUID, *, limit: int) -> Sequence[RefundRequest]:
    """Return the newest `limit` refunds that the merchant requested for an invoice, in the order of their creation."""
    newest = await tx.fetch_as(
        RefundRequest,
        """
        SELECT r.refund_id, r.invoice_id, r.charge_id, r.connection_id, r.gateway_charge_id, r.stage, r.amount_cents,
            r.left_cents, r.currency, r.reason, r.created_at, r.next_attempt_at, r.closed_at, r.payment_entry_id,
            r.error_code, r.error_detail
        FROM refund_request r WHERE r.account_id = $1 AND r.invoice_id = $2
        ORDER BY r.created_at DESC, r.refund_id DESC LIMIT $3
        """,
        invoice_id,
        limit,
    )
    return newest[::-1]
