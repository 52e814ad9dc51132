"""SQL that reads the charges that `GET /v1/invoices/{invoiceId}` shows (D-49)."""

from collections.abc import Sequence
from uuid import UUID

from fatura.domain.charge import PayData, ShownCharge
from fatura.store.db import Tx, record


async def of_invoice(tx: Tx, invoice_id: UUID, *, limit: int) -> Sequence[ShownCharge]:
    """Return the newest `limit` charges of an invoice, in the order of their numbers."""
    rows = await tx.fetch(
        """
        SELECT c.charge_id, c.number, c.connection_id, g.provider, c.stage, c.gateway_invoice_id, c.amount_cents,
            c.currency, c.payment_method, c.installments, c.due_date, c.created_at, c.closed_at, c.error_code,
            c.error_detail, c.pay_url, c.pix_code, c.boleto_line, c.pay_expires_at,
            g.settings ->> 'instructions' AS instructions
        FROM charge c JOIN gateway_connection g ON g.connection_id = c.connection_id
        WHERE c.account_id = $1 AND g.account_id = $1 AND c.invoice_id = $2
        ORDER BY c.number DESC LIMIT $3
        """,
        invoice_id,
        limit,
    )
    return [
        record(
            ShownCharge,
            row,
            pay=PayData(row["pay_url"], row["pix_code"], row["boleto_line"], row["pay_expires_at"]),
        )
        for row in reversed(rows)
    ]
