"""The values of variable items. An item's first value is final (spec 4.7, D-28, D-32)."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.invoice import PricingSource, PricingStatus
from fatura.store.db import Tx, record
from fatura.store.pricing.price_pulls import ItemKey


@dataclass(frozen=True, slots=True)
class ItemValue:
    """A value for a pending item; `amount_cents` is None when the item is skipped."""

    invoice_id: UUID
    position: int
    source: PricingSource
    status: PricingStatus
    amount_cents: int | None
    description: str | None


async def close(tx: Tx, values: Sequence[ItemValue]) -> set[ItemKey]:
    """Set the values of items that are still pending and return those items. `values` has each item at most once."""
    rows = await tx.fetch(
        """
        UPDATE invoice_item i SET pricing_source = u.source, pricing_status = u.status, amount_cents = u.amount_cents,
            description = u.description
        FROM unnest($2::uuid[], $3::int2[], $4::text[], $5::text[], $6::int8[], $7::text[])
            AS u (invoice_id, position, source, status, amount_cents, description)
        WHERE i.account_id = $1 AND i.invoice_id = ANY($2::uuid[]) AND i.invoice_id = u.invoice_id
            AND i.position = u.position
            AND i.pricing_status = 'pending'
        RETURNING i.invoice_id, i.position
        """,
        [value.invoice_id for value in values],
        [value.position for value in values],
        [value.source for value in values],
        [value.status for value in values],
        [value.amount_cents for value in values],
        [value.description for value in values],
    )
    return {(row["invoice_id"], row["position"]) for row in rows}


async def find_position(tx: Tx, invoice_id: UUID, item_id: UUID) -> int | None:
    return await tx.fetchval(
        "SELECT i.position FROM invoice_item i WHERE i.account_id = $1 AND i.invoice_id = $2 AND i.item_id = $3",
        invoice_id,
        item_id,
    )


@dataclass(frozen=True, slots=True)
class ItemTotals:
    """The number of an invoice's pending items, and the sum of the amounts of its other items."""

    pending: int
    total_cents: int


async def totals(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, ItemTotals]:
    """Return the totals of each invoice's items (D-9)."""
    rows = await tx.fetch(
        """
        SELECT i.invoice_id, count(*) FILTER (WHERE i.pricing_status = 'pending') AS pending,
            coalesce(sum(i.amount_cents), 0)::int8 AS total_cents
        FROM invoice_item i WHERE i.account_id = $1 AND i.invoice_id = ANY($2::uuid[])
        GROUP BY i.invoice_id
        """,
        invoice_ids,
    )
    return {row["invoice_id"]: record(ItemTotals, row) for row in rows}
