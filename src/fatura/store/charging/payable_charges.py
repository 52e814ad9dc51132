"""SQL that finds the open charge that a credit of a bank statement pays, by the amount and the payer (D-257)."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class OpenCharges:
    """The open charges of one amount and one payer: how many there are, and the gateway's id of one of them."""

    document_hash: bytes
    amount_cents: int
    gateway_charge_id: str
    charges: int


async def of_payers(
    tx: Tx, connection_id: UUID, *, hashes: Sequence[bytes], amounts_cents: Sequence[int]
) -> Sequence[OpenCharges]:
    """Group a connection's open charges by payer and amount, for payers with these hashes and for these amounts."""
    return await tx.fetch_as(
        OpenCharges,
        """
        SELECT k.document_hash, c.amount_cents, min(c.gateway_invoice_id) AS gateway_charge_id, count(*) AS charges
        FROM customer k
        JOIN subscription s ON s.account_id = $1 AND s.customer_id = k.customer_id
        JOIN invoice v ON v.account_id = $1 AND v.subscription_id = s.subscription_id
        JOIN charge c ON c.account_id = $1 AND c.invoice_id = v.invoice_id
        WHERE k.account_id = $1 AND k.document_hash = ANY($3::bytea[]) AND v.status IN ('issued', 'overdue')
            AND c.connection_id = $2 AND c.stage = 'open' AND c.amount_cents = ANY($4::bigint[])
        GROUP BY k.document_hash, c.amount_cents
        """,
        connection_id,
        hashes,
        amounts_cents,
    )
