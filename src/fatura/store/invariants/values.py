"""Invariants of items, prices and totals."""

from fatura.store.invariants.invariant import Invariant

VALUES: tuple[Invariant, ...] = (
    Invariant(
        "invoice_has_items",
        "every invoice has an item",
        """
        SELECT v.invoice_id AS offender FROM invoice v
        WHERE v.account_id = $1 AND NOT EXISTS (
            SELECT FROM invoice_item i WHERE i.account_id = $1 AND i.invoice_id = v.invoice_id
        )
        """,
    ),
    Invariant(
        "item_amounts_match_prices",
        "the amount of a table item is months times price less the discount, rounded half up",
        """
        SELECT i.item_id AS offender FROM invoice_item i
        WHERE i.account_id = $1 AND i.pricing_source = 'table' AND (
            i.pricing_status <> 'priced' OR i.amount_cents IS DISTINCT FROM
                round(i.months::numeric * i.monthly_price_cents * (100 - coalesce(i.discount_percent, 0)) / 100)
        )
        """,
    ),
    Invariant(
        "total_is_sum_of_items",
        "an invoice's total is the sum of its priced items, and null only while an item is pending",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v JOIN invoice_item i ON i.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND i.account_id = $1
        GROUP BY v.invoice_id, v.total_cents, v.status
        HAVING (v.total_cents IS NOT NULL AND v.total_cents <> coalesce(sum(i.amount_cents), 0))
            OR (v.total_cents IS NOT NULL AND bool_or(i.pricing_status = 'pending'))
            OR (v.total_cents IS NULL AND v.status <> 'canceled' AND NOT bool_or(i.pricing_status = 'pending'))
        """,
    ),
    Invariant(
        "amounts_in_the_accounts_currency",
        "every invoice, item, charge, payment entry and refund has the currency of its account",
        """
        SELECT u.offender FROM (
            SELECT v.invoice_id AS offender, v.currency FROM invoice v WHERE v.account_id = $1
            UNION ALL
            SELECT i.item_id, i.currency FROM invoice_item i WHERE i.account_id = $1
            UNION ALL
            SELECT c.charge_id, c.currency FROM charge c WHERE c.account_id = $1
            UNION ALL
            SELECT e.payment_entry_id, e.currency FROM payment_entry e WHERE e.account_id = $1
            UNION ALL
            SELECT r.refund_id, r.currency FROM refund_request r WHERE r.account_id = $1
        ) u JOIN account a ON a.account_id = $1
        WHERE u.currency <> a.currency
        """,
    ),
    Invariant(
        "pending_items_have_price_pulls",
        "a pending item of an open invoice has a price pull; the price pull of any other item has ended",
        """
        SELECT i.item_id AS offender
        FROM invoice_item i
        JOIN invoice v ON v.invoice_id = i.invoice_id
        LEFT JOIN price_pull p ON p.account_id = $1 AND p.invoice_id = i.invoice_id AND p.position = i.position
        WHERE i.account_id = $1 AND v.account_id = $1 AND (
            (i.pricing_status = 'pending' AND v.status IN ('draft', 'awaiting_value') AND p.invoice_id IS NULL)
            OR ((i.pricing_status <> 'pending' OR v.status = 'canceled')
                AND (p.next_attempt_at IS NOT NULL OR p.warn_at IS NOT NULL))
        )
        """,
    ),
    Invariant(
        "priced_items_have_answers",
        "an item that a price endpoint priced or skipped has a price call with such an answer, until it is old",
        """
        SELECT i.item_id AS offender
        FROM invoice_item i
        WHERE i.account_id = $1 AND i.pricing_source = 'endpoint' AND i.pricing_status <> 'pending' AND NOT EXISTS (
            SELECT FROM pricing_attempt a
            WHERE a.account_id = $1 AND a.invoice_id = i.invoice_id AND a.position = i.position
                AND a.outcome = CASE i.pricing_status WHEN 'skipped' THEN 'skip' ELSE 'ok' END
        ) AND NOT EXISTS (
            SELECT FROM price_pull p
            WHERE p.account_id = $1 AND p.invoice_id = i.invoice_id AND p.position = i.position AND p.calls_deleted
        )
        """,
    ),
)
