"""The counter row of an account: its last event number and the totals of its lists."""

from collections.abc import Mapping

from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.subscription import SubscriptionStatus
from fatura.store.db import Tx

COLUMNS = (
    "products",
    "plans",
    "customers",
    *(f"subscriptions_{status}" for status in SubscriptionStatus),
    *(f"invoices_{status}" for status in InvoiceStatus),
)


async def add(tx: Tx, *, events: int, deltas: Mapping[str, int]) -> int:
    """Reserve `events` numbers, add the deltas, return the last number. Call this last: the row lock blocks others."""
    assert deltas.keys() <= set(COLUMNS), deltas
    return await tx.fetchval(
        """
        UPDATE account_counter c SET
            last_sequence = c.last_sequence + $2,
            products = c.products + $3,
            plans = c.plans + $4,
            customers = c.customers + $5,
            subscriptions_active = c.subscriptions_active + $6,
            subscriptions_canceled = c.subscriptions_canceled + $7,
            invoices_draft = c.invoices_draft + $8,
            invoices_awaiting_value = c.invoices_awaiting_value + $9,
            invoices_ready = c.invoices_ready + $10,
            invoices_issued = c.invoices_issued + $11,
            invoices_paid = c.invoices_paid + $12,
            invoices_overdue = c.invoices_overdue + $13,
            invoices_canceled = c.invoices_canceled + $14
        WHERE c.account_id = $1
        RETURNING c.last_sequence
        """,
        events,
        *(deltas.get(column, 0) for column in COLUMNS),
    )


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
    """Return the number of the account's last event, or 0 if there is none."""
    return await tx.fetchval("SELECT c.last_sequence FROM account_counter c WHERE c.account_id = $1")
