"""The counter row of an account: the numbers of its newest event and newest audit entry, and the totals of lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.subscription import SubscriptionStatus
from fatura.store.db import Tx

COLUMNS = (
    "products",
    "plans",
    "plan_items",
    "customers",
    *(f"subscriptions_{status}" for status in SubscriptionStatus),
    *(f"invoices_{status}" for status in InvoiceStatus),
)


@dataclass(frozen=True, slots=True)
class Counted:
    """The numbers of an account's newest event and newest audit entry, the time of this entry, and totals of rows."""

    last_sequence: int
    last_audit_sequence: int
    last_audited_at: datetime | None
    products: int
    plans: int
    plan_items: int

    @property
    def limited(self) -> Mapping[str, int]:
        """Return the totals that have a quota (D-245)."""
        return {"products": self.products, "plans": self.plans, "plan_items": self.plan_items}


async def add(tx: Tx, *, events: int, entries: int, now: datetime, deltas: Mapping[str, int]) -> Counted:
    """Reserve numbers for events and audit entries, and add the deltas to the totals.

    The caller gives the new entries the returned `last_audited_at` as their time. This is `now` or, if it is later, the
    time of the newest stored entry.

    Call this after the transaction's other changes, because the lock of the counter row blocks the account's other
    writers until the commit.
    """
    assert deltas.keys() <= set(COLUMNS), deltas
    counted = await tx.fetchrow_as(
        Counted,
        """
        UPDATE account_counter c SET
            last_sequence = c.last_sequence + $2,
            untaken_events = c.untaken_events OR (c.webhook_enabled AND $2 > 0),
            products = c.products + $3,
            plans = c.plans + $4,
            plan_items = c.plan_items + $5,
            customers = c.customers + $6,
            subscriptions_active = c.subscriptions_active + $7,
            subscriptions_canceled = c.subscriptions_canceled + $8,
            invoices_draft = c.invoices_draft + $9,
            invoices_awaiting_value = c.invoices_awaiting_value + $10,
            invoices_ready = c.invoices_ready + $11,
            invoices_issued = c.invoices_issued + $12,
            invoices_paid = c.invoices_paid + $13,
            invoices_overdue = c.invoices_overdue + $14,
            invoices_canceled = c.invoices_canceled + $15,
            last_audit_sequence = c.last_audit_sequence + $16,
            last_audited_at = greatest(c.last_audited_at, $17)
        WHERE c.account_id = $1
        RETURNING c.last_sequence, c.last_audit_sequence, c.last_audited_at, c.products, c.plans, c.plan_items
        """,
        events,
        *(deltas.get(column, 0) for column in COLUMNS),
        entries,
        now if entries else None,
    )
    assert counted is not None, "every account has a counter row"
    return counted


async def totals(tx: Tx) -> Mapping[str, int]:
    row = await tx.fetchrow(
        """
        SELECT c.products, c.plans, c.customers, c.subscriptions_active, c.subscriptions_canceled, c.invoices_draft,
            c.invoices_awaiting_value, c.invoices_ready, c.invoices_issued, c.invoices_paid, c.invoices_overdue,
            c.invoices_canceled
        FROM account_counter c WHERE c.account_id = $1
        """
    )
    assert row is not None, "every account has a counter row"
    return dict(row)


async def last_sequence(tx: Tx) -> int:
    """Return the number of the account's newest event, or 0 if there is none."""
    return await tx.fetchval("SELECT c.last_sequence FROM account_counter c WHERE c.account_id = $1")


async def note_webhook(tx: Tx) -> None:
    """Store whether the account has an enabled webhook, and whether this webhook has events without deliveries.

    Call this after each change of the webhook and, like `add`, after the transaction's other changes.
    A concurrent transaction that emits events holds the lock of the counter row until it commits. This statement waits
    for that commit, and then sees the number of the newest event.
    """
    await tx.execute(
        """
        UPDATE account_counter c SET
            webhook_enabled = EXISTS (SELECT FROM webhook w WHERE w.account_id = $1 AND w.disabled_at IS NULL),
            untaken_events = EXISTS (
                SELECT FROM webhook w
                WHERE w.account_id = $1 AND w.disabled_at IS NULL AND w.fanned_out_to < c.last_sequence
            )
        WHERE c.account_id = $1
        """
    )


async def note_events_taken(tx: Tx) -> None:
    """Store that all events have deliveries. Do nothing if the newest event's number is above `fanned_out_to`.

    The caller must have locked the webhook. Like `add`, call this after the transaction's other changes. Like
    `note_webhook`, this statement waits for concurrent transactions that emit events.
    """
    await tx.execute(
        """
        UPDATE account_counter c SET untaken_events = false
        WHERE c.account_id = $1 AND c.untaken_events
            AND c.last_sequence <= (SELECT w.fanned_out_to FROM webhook w WHERE w.account_id = $1)
        """
    )
