"""Invariants of the event stream, and of the stored numbers of rows that lists and quotas use."""

from fatura.store.invariants.invariant import Invariant

# A statement that sorts events uses a materialized WITH, so that the sorted rows do not contain the events' data.
# Statements that compare two large tables use UNION ALL with GROUP BY, because a join could become a slow nested loop.
EVENTS: tuple[Invariant, ...] = (
    Invariant(
        "events_match_invoices",
        "an item has the name and months that its events show, and the value that its events show after it is closed",
        """
        SELECT DISTINCT i.item_id AS offender
        FROM event e
        CROSS JOIN LATERAL json_to_recordset(e.data::json #> '{invoice,items}') AS t (
            id uuid, "productName" text, months int, "pricingStatus" text, "amountCents" bigint, description text
        )
        JOIN invoice_item i ON i.invoice_id = e.invoice_id AND i.item_id = t.id
        WHERE e.account_id = $1 AND i.account_id = $1 AND (
            (t."productName", t.months) IS DISTINCT FROM (i.product_name, i.months::int)
            OR (t."pricingStatus" <> 'pending' AND (t."pricingStatus", t."amountCents", t.description)
                IS DISTINCT FROM (i.pricing_status, i.amount_cents, i.description))
        )
        """,
    ),
    Invariant(
        "event_numbers_without_gaps",
        "event numbers run from the first one that is not deleted to the counter without gaps",
        """
        SELECT c.account_id AS offender
        FROM account_counter c LEFT JOIN retention r ON r.account_id = $1 AND r.kind = 'events'
        WHERE c.account_id = $1 AND (
            SELECT (count(*), coalesce(max(e.sequence), c.last_sequence)) FROM event e WHERE e.account_id = $1
        ) IS DISTINCT FROM (c.last_sequence - coalesce(r.deleted_to, 0), c.last_sequence)
        """,
    ),
    Invariant(
        "one_created_event_per_invoice",
        "every invoice has exactly one invoice.created event, or none after the event was deleted",
        """
        SELECT u.invoice_id AS offender
        FROM (
            SELECT v.invoice_id, v.created_at, 1 AS invoices, 0 AS events FROM invoice v WHERE v.account_id = $1
            UNION ALL
            SELECT e.invoice_id, NULL, 0, 1 FROM event e WHERE e.account_id = $1 AND e.type = 'invoice.created'
        ) u
        GROUP BY u.invoice_id
        HAVING sum(u.invoices) <> 1 OR sum(u.events) > 1 OR (sum(u.events) = 0 AND max(u.created_at) > coalesce((
            SELECT r.deleted_until FROM retention r WHERE r.account_id = $1 AND r.kind = 'events'
        ), '-infinity'))
        """,
    ),
    Invariant(
        "status_events_emitted_once",
        "an issued, paid, overdue or canceled invoice has one event of that status, or one more for each reissue, "
        "or none after old events were deleted",
        """
        SELECT u.invoice_id AS offender
        FROM (
            SELECT v.invoice_id, 'invoice.' || v.status AS type, 1 AS invoices, 0 AS events, 0 AS reissues,
                v.created_at
            FROM invoice v
            WHERE v.account_id = $1 AND v.status IN ('issued', 'paid', 'overdue', 'canceled')
            UNION ALL
            SELECT e.invoice_id, e.type, 0, 1, 0, NULL FROM event e
            WHERE e.account_id = $1
                AND e.type IN ('invoice.issued', 'invoice.paid', 'invoice.overdue', 'invoice.canceled')
            UNION ALL
            SELECT e.invoice_id, t.type, 0, 0, 1, NULL
            FROM event e CROSS JOIN (VALUES ('invoice.issued'), ('invoice.overdue')) AS t (type)
            WHERE e.account_id = $1 AND e.type = 'invoice.reissued'
        ) u
        GROUP BY u.invoice_id, u.type
        HAVING sum(u.invoices) = 1 AND (sum(u.events) > 1 + sum(u.reissues) OR (
            sum(u.events) = 0 AND max(u.created_at) > coalesce((
                SELECT r.deleted_until FROM retention r WHERE r.account_id = $1 AND r.kind = 'events'
            ), '-infinity')
        ))
        """,
    ),
    Invariant(
        "status_moves_allowed",
        "an invoice's events begin with its creation, unless old ones were deleted, and report allowed moves up to its "
        "status",
        """
        WITH moves AS MATERIALIZED (
            SELECT e.invoice_id, e.sequence, e.type = 'invoice.created' AS is_first, CASE e.type
                WHEN 'invoice.created' THEN e.data::json #>> '{invoice,status}'
                WHEN 'invoice.held' THEN 'awaiting_value'
                WHEN 'invoice.reissued' THEN 'ready'
                ELSE substr(e.type, 9) END AS state
            FROM event e
            WHERE e.account_id = $1 AND e.type IN (
                'invoice.created', 'invoice.held', 'invoice.ready', 'invoice.issued', 'invoice.paid',
                'invoice.overdue', 'invoice.canceled', 'invoice.reissued'
            )
        )
        SELECT DISTINCT n.invoice_id AS offender
        FROM (
            SELECT t.invoice_id, t.state, t.is_first, lag(t.state) OVER w AS before, lead(t.state) OVER w AS following
            FROM moves t WINDOW w AS (PARTITION BY t.invoice_id ORDER BY t.sequence)
        ) n
        JOIN invoice v ON v.invoice_id = n.invoice_id
        WHERE v.account_id = $1 AND (
            (n.is_first AND n.before IS NOT NULL)
            OR (NOT n.is_first AND n.before IS NULL AND v.created_at > coalesce((
                SELECT r.deleted_until FROM retention r WHERE r.account_id = $1 AND r.kind = 'events'
            ), '-infinity'))
            OR (n.is_first AND n.state NOT IN ('draft', 'ready', 'paid'))
            OR (n.before || ' ' || n.state) NOT IN (
                'draft awaiting_value', 'draft ready', 'draft paid', 'draft canceled', 'awaiting_value ready',
                'awaiting_value paid', 'awaiting_value canceled', 'ready ready', 'ready issued', 'ready paid',
                'ready canceled', 'issued ready', 'issued paid', 'issued overdue', 'issued canceled', 'overdue ready',
                'overdue paid', 'overdue canceled', 'paid paid'
            )
            OR (n.following IS NULL AND n.state <> v.status)
        )
        """,
    ),
    Invariant(
        "list_totals",
        "the totals of lists and quotas equal the numbers of rows",
        """
        SELECT c.account_id AS offender
        FROM account_counter c
        WHERE c.account_id = $1 AND (
            c.products, c.plans, c.plan_items, c.customers, c.subscriptions_active, c.subscriptions_canceled,
            c.invoices_draft, c.invoices_awaiting_value, c.invoices_ready, c.invoices_issued, c.invoices_paid,
            c.invoices_overdue, c.invoices_canceled
        ) IS DISTINCT FROM (
            (SELECT count(*) FROM product p WHERE p.account_id = $1),
            (SELECT count(*) FROM plan p WHERE p.account_id = $1),
            (
                SELECT count(*) FROM plan_version t
                JOIN plan_item i ON i.plan_version_id = t.plan_version_id
                LEFT JOIN subscription s ON s.account_id = $1 AND s.subscription_id = t.subscription_id
                WHERE t.account_id = $1 AND i.account_id = $1
                    AND (t.subscription_id IS NULL OR s.plan_version_id = t.plan_version_id AND NOT (
                        s.status = 'canceled' AND EXISTS (
                            SELECT FROM invoice v WHERE v.account_id = $1
                                AND v.subscription_id = s.subscription_id AND v.plan_version_id = t.plan_version_id
                        )
                    ))
            ),
            (SELECT count(*) FROM customer p WHERE p.account_id = $1),
            (SELECT count(*) FROM subscription s WHERE s.account_id = $1 AND s.status = 'active'),
            (SELECT count(*) FROM subscription s WHERE s.account_id = $1 AND s.status = 'canceled'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'draft'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'awaiting_value'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'ready'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'issued'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'paid'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'overdue'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'canceled')
        )
        """,
    ),
)
