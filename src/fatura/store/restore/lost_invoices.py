"""Invoices that were lost in a restore, and their charges at gateways (D-123).

The cycle of a lost invoice must be billed again. A worker may have done so before `fatura restored` found the charges
(D-181).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from fatura.ids import bill_same_cycle
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class LostInvoice:
    """A cycle that was billed after the backup, with the id, the connection and the charges of its lost invoice."""

    subscription_id: UUID
    cycle: int
    invoice_id: UUID
    connection_id: UUID
    attempt: int
    amount_cents: int
    charge_due_date: date | None
    charge_ids: Sequence[str]

    @property
    def key(self) -> tuple[UUID, int]:
        return self.subscription_id, self.cycle


async def keep(tx: Tx, lost: LostInvoice) -> bool:
    """Store a lost invoice. If it is stored already, add the charges that are new.

    Keep the attempt, amount and due date of the charge with the highest attempt. The next charge of the cycle then gets
    a higher attempt, so that no reference repeats. If an added charge is on another connection than the stored charges,
    store nothing and return False.
    """
    touched = await tx.execute(
        """
        INSERT INTO lost_invoice AS l (account_id, subscription_id, cycle, invoice_id, connection_id, attempt,
            amount_cents, charge_due_date, charge_ids)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (account_id, subscription_id, cycle) DO UPDATE
        SET charge_ids = CASE
                WHEN l.charge_ids @> EXCLUDED.charge_ids THEN l.charge_ids ELSE l.charge_ids || EXCLUDED.charge_ids
            END,
            attempt = CASE WHEN EXCLUDED.attempt > l.attempt THEN EXCLUDED.attempt ELSE l.attempt END,
            amount_cents = CASE WHEN EXCLUDED.attempt > l.attempt THEN EXCLUDED.amount_cents ELSE l.amount_cents END,
            charge_due_date = CASE
                WHEN EXCLUDED.attempt > l.attempt THEN EXCLUDED.charge_due_date ELSE l.charge_due_date
            END
        WHERE l.account_id = $1
            AND (l.connection_id = EXCLUDED.connection_id OR l.charge_ids @> EXCLUDED.charge_ids)
        """,
        lost.subscription_id,
        lost.cycle,
        lost.invoice_id,
        lost.connection_id,
        lost.attempt,
        lost.amount_cents,
        lost.charge_due_date,
        list(lost.charge_ids),
    )
    return touched == 1


async def of_subscriptions(tx: Tx, subscription_ids: Sequence[UUID]) -> dict[tuple[UUID, int], LostInvoice]:
    """Return lost invoices by subscription and cycle, including those whose cycles were billed again."""
    found = await tx.fetch_as(
        LostInvoice,
        """
        SELECT l.subscription_id, l.cycle, l.invoice_id, l.connection_id, l.attempt, l.amount_cents, l.charge_due_date,
            l.charge_ids
        FROM lost_invoice l WHERE l.account_id = $1 AND l.subscription_id = ANY($2::uuid[])
        """,
        subscription_ids,
    )
    return {lost.key: lost for lost in found}


async def never_billed(tx: Tx) -> Sequence[LostInvoice]:
    """Return the lost invoices whose cycle has no invoice and will get none, because the subscription is canceled."""
    return await tx.fetch_as(
        LostInvoice,
        """
        SELECT l.subscription_id, l.cycle, l.invoice_id, l.connection_id, l.attempt, l.amount_cents, l.charge_due_date,
            l.charge_ids
        FROM lost_invoice l JOIN subscription s ON s.subscription_id = l.subscription_id
        WHERE l.account_id = $1 AND s.account_id = $1 AND s.status = 'canceled' AND l.cycle > s.cycle_count
        """,
    )


async def forget(tx: Tx, cycles: Sequence[tuple[UUID, int]]) -> None:
    """Delete the lost invoices of these cycles, each a pair of subscription and cycle."""
    await tx.execute(
        """
        DELETE FROM lost_invoice l USING unnest($2::uuid[], $3::integer[]) AS n (subscription_id, cycle)
        WHERE l.account_id = $1 AND l.subscription_id = n.subscription_id AND l.cycle = n.cycle
        """,
        [subscription_id for subscription_id, _ in cycles],
        [cycle for _, cycle in cycles],
    )


async def current_ids(tx: Tx, charges: Sequence[tuple[str, UUID]]) -> dict[tuple[str, UUID], UUID]:
    """For each charge of a lost invoice, return the id of the invoice that replaced the lost invoice (D-181).

    A charge is a pair, in `charges` and in the result: the gateway's id of the charge, and the invoice id in the
    charge's reference. A charge is left out if this invoice id is stored, or if the lost cycle was not billed again.
    """
    rows = await tx.fetch(
        """
        SELECT n.charge_id, n.invoice_id AS earlier_id, v.invoice_id
        FROM unnest($2::text[], $3::uuid[]) AS n (charge_id, invoice_id)
        JOIN lost_invoice l ON l.account_id = $1 AND l.charge_ids @> ARRAY[n.charge_id]
        JOIN invoice v ON v.account_id = $1 AND v.subscription_id = l.subscription_id AND v.cycle = l.cycle
        WHERE NOT EXISTS (SELECT FROM invoice o WHERE o.account_id = $1 AND o.invoice_id = n.invoice_id)
        """,
        [charge_id for charge_id, _ in charges],
        [invoice_id for _, invoice_id in charges],
    )
    return {
        (row["charge_id"], row["earlier_id"]): row["invoice_id"]
        for row in rows
        # two providers may use the same id for different charges
        if bill_same_cycle(row["earlier_id"], row["invoice_id"])
    }
