"""SQL with which a sweep compares the stored charges with the provider's list (D-161)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.charge import ChargeStage
from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class OwnCharge:
    """A stored charge that the provider listed, with the status of its invoice."""

    charge_id: UUID
    connection_id: UUID
    gateway_invoice_id: str
    stage: ChargeStage
    listed_at: datetime | None
    invoice_status: InvoiceStatus


@dataclass(frozen=True, slots=True)
class CheckedCharge:
    """A stored charge that a sweep checked. `is_missing` is true if the provider should have listed it, but did not."""

    charge_id: UUID
    invoice_id: UUID
    gateway_invoice_id: str | None
    is_missing: bool


async def find(tx: Tx, invoice_ids: Sequence[UUID], gateway_ids: Sequence[str]) -> Sequence[OwnCharge]:
    """Return the charges of these invoices whose gateway id is one of `gateway_ids`, on any connection.

    The result can contain charges of another connection than the swept one. If two connections belong to one account at
    the provider, the list of each connection has the charges of both.
    """
    return await tx.fetch_as(
        OwnCharge,
        """
        SELECT c.charge_id, c.connection_id, c.gateway_invoice_id, c.stage, c.listed_at, v.status AS invoice_status
        FROM charge c JOIN invoice v ON v.invoice_id = c.invoice_id
        WHERE c.account_id = $1 AND v.account_id = $1 AND c.invoice_id = ANY($2::uuid[])
            AND c.gateway_invoice_id = ANY($3::text[])
        """,
        invoice_ids,
        gateway_ids,
    )


async def connections(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return the connection of each of these invoices, by the invoice's id. Unknown ids are left out."""
    rows = await tx.fetch(
        """
        SELECT v.invoice_id, v.connection_id FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    )
    return {row["invoice_id"]: row["connection_id"] for row in rows}


async def mark(tx: Tx, charge_ids: Sequence[UUID], *, listed_at: datetime) -> None:
    """Store when the provider listed these charges. The charges are locked in id order, to avoid deadlocks."""
    await tx.execute(
        """
        WITH listed AS MATERIALIZED (
            SELECT x.charge_id FROM charge x
            WHERE x.account_id = $1 AND x.charge_id = ANY($2::uuid[])
            ORDER BY x.charge_id FOR NO KEY UPDATE
        )
        UPDATE charge c SET listed_at = $3 FROM listed
        WHERE c.account_id = $1 AND c.charge_id = listed.charge_id
        """,
        charge_ids,
        listed_at,
    )


async def check(
    tx: Tx,
    connection_id: UUID,
    *,
    after: UUID,
    since: datetime,
    until: datetime,
    unpaid_listed_from: datetime,
    paid_listed_from: datetime,
    limit: int,
) -> Sequence[CheckedCharge]:
    """Return the account's next charges after id `after`, in the order of their ids.

    A charge of the connection is missing if it was created at `since` or later, was confirmed at `until` or earlier,
    and was not listed recently. Recently means since `paid_listed_from` for a paid charge, and since
    `unpaid_listed_from` for an open, refused or expired charge. A charge in any other stage is never missing.
    """
    return await tx.fetch_as(
        CheckedCharge,
        """
        SELECT c.charge_id, c.invoice_id, c.gateway_invoice_id,
            c.connection_id = $2 AND c.created_at >= $4 AND coalesce(c.confirmed_at <= $5, false)
                AND CASE
                    WHEN c.stage = 'paid' THEN coalesce(c.listed_at < $7, true)
                    WHEN c.stage IN ('open', 'refused', 'expired') THEN coalesce(c.listed_at < $6, true)
                    ELSE false
                END AS is_missing
        FROM charge c WHERE c.account_id = $1 AND c.charge_id > $3
        ORDER BY c.charge_id LIMIT $8
        """,
        connection_id,
        after,
        since,
        until,
        unpaid_listed_from,
        paid_listed_from,
        limit,
    )
