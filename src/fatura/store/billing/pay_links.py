"""SQL of the number that each invoice's pay link contains (ADR 0020)."""

from uuid import UUID

from fatura.store.db import Tx


async def replace(tx: Tx, invoice_id: UUID) -> bool:
    """Make the current link of an invoice invalid. Return whether the invoice exists."""
    changed = await tx.execute(
        """
        UPDATE invoice v SET pay_link_version = v.pay_link_version + 1 WHERE v.account_id = $1 AND v.invoice_id = $2
        """,
        invoice_id,
    )
    return changed == 1
