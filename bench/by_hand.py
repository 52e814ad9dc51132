"""A hand-written SQL statement that bills all due subscriptions of an account, to compare with the engine.

The statement writes the same rows as the engine: invoices, items, events, counters and the subscriptions' next cycle.
Both sides write into tables with the same constraints. The statement supports only the terms, the payment method and
the clock that `bench.prepared` gives an account.
"""

BY_HAND = """
WITH held AS MATERIALIZED (
    SELECT s.*, c.external_ref AS customer_ref, c.name AS customer_name, c.email AS customer_email,
        s.cycle_count + 1 AS cycle
    FROM subscription s JOIN customer c ON c.account_id = $1 AND c.customer_id = s.customer_id
    WHERE s.account_id = $1 AND s.status = 'active' AND s.put_off_until IS NULL AND s.generate_at <= $2
    FOR UPDATE OF s
), due AS MATERIALIZED (
    SELECT h.*, uuidv7() AS invoice_id, uuidv7() AS event_id, row_number() OVER () AS place,
        (h.next_due_date + interval '1 month')::date AS following
    FROM held h
), offered AS MATERIALIZED (
    SELECT i.plan_version_id, i.position, p.product_id, p.name, p.external_ref, p.monthly_price_cents, d.percent,
        (p.monthly_price_cents * (100 - coalesce(d.percent, 0)) + 50) / 100 AS amount_cents
    FROM plan_item i
    JOIN product p ON p.account_id = $1 AND p.product_id = i.product_id
    LEFT JOIN plan_discount d
        ON d.account_id = $1 AND d.plan_version_id = i.plan_version_id AND d.position = i.position
    WHERE i.account_id = $1
), billed AS MATERIALIZED (
    SELECT u.invoice_id, o.*, uuidv7() AS item_id FROM due u JOIN offered o ON o.plan_version_id = u.plan_version_id
), totals AS MATERIALIZED (
    SELECT b.invoice_id, sum(b.amount_cents) AS total_cents, string_agg(
        '{"id":"' || b.item_id || '","productId":"' || b.product_id || '","productName":' || to_json(b.name)
        || ',"pricingSource":"table","pricingStatus":"priced","months":1,"monthlyPriceCents":'
        || b.monthly_price_cents || ',"discountPercent":' || coalesce(b.percent::text, 'null') || ',"amountCents":'
        || b.amount_cents || ',"currency":"BRL","description":null,"productExternalRef":' || to_json(b.external_ref)
        || '}', ','
        ORDER BY b.position) AS items
    FROM billed b GROUP BY b.invoice_id
), advanced AS (
    UPDATE subscription s SET cycle_count = u.cycle, next_period_start = u.following, next_due_date = u.following,
        generate_at = u.following - interval '3 days'
    FROM due u WHERE s.account_id = $1 AND s.subscription_id = u.subscription_id
), invoices AS (
    INSERT INTO invoice (account_id, invoice_id, subscription_id, plan_version_id, connection_id, cycle, status,
        period_start, period_end, due_date, payment_method, total_cents, currency, created_at, next_attempt_at)
    SELECT $1, u.invoice_id, u.subscription_id, u.plan_version_id, u.connection_id, u.cycle, 'ready',
        u.next_period_start, u.following - 1, u.next_due_date, u.payment_method, t.total_cents, 'BRL', $2, $2
    FROM due u JOIN totals t ON t.invoice_id = u.invoice_id
), items AS (
    INSERT INTO invoice_item (account_id, invoice_id, position, item_id, product_id, product_name, pricing_source,
        pricing_status, months, monthly_price_cents, discount_percent, amount_cents, currency)
    SELECT $1, b.invoice_id, b.position, b.item_id, b.product_id, b.name, 'table', 'priced', 1,
        b.monthly_price_cents, b.percent, b.amount_cents, 'BRL'
    FROM billed b
), counted AS (
    UPDATE account_counter c SET last_sequence = c.last_sequence + n.n, invoices_ready = c.invoices_ready + n.n
    FROM (SELECT count(*) AS n FROM due) n WHERE c.account_id = $1
    RETURNING c.last_sequence - n.n AS before
)
INSERT INTO event (account_id, sequence, event_id, type, created_at, subscription_id, invoice_id, data,
    stored_at)
SELECT $1, k.before + u.place, u.event_id, 'invoice.created', $2, u.subscription_id, u.invoice_id,
    '{"invoice":{"id":"' || u.invoice_id || '","subscriptionId":"' || u.subscription_id
    || '","customer":{"id":"' || u.customer_id || '","externalRef":' || to_json(u.customer_ref)
    || ',"name":' || to_json(u.customer_name) || ',"email":' || to_json(u.customer_email) || '},"cycle":' || u.cycle
    || ',"status":"ready","dueDate":"' || u.next_due_date || '","paymentMethod":"' || u.payment_method
    || '","installments":null,"totalCents":' || t.total_cents
    || ',"currency":"BRL","paidCents":0,"refundedCents":0'
    || ',"gatewayInvoiceId":null,"issuedAt":null,"paidAt":null,"refundedAt":null,"disputedAt":null,'
    || '"canceledAt":null,"issueError":null,"createdAt":"'
    || to_char($2 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    || '","subscriptionExternalRef":null,"items":[' || t.items || '],"payments":[],"paymentCount":0}}', now()
FROM due u JOIN totals t ON t.invoice_id = u.invoice_id CROSS JOIN counted k
"""
