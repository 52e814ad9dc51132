"""Give an account many due subscriptions by plain SQL, for measurements of the billing run."""

from typing import Any
from uuid import UUID

import asyncpg

PLANS = 4
DISCOUNTED_CYCLES = 3

_STATEMENTS = (
    """
    INSERT INTO product (account_id, product_id, name, external_ref, pricing_mode, monthly_price_cents, created_at)
    SELECT $1, gen_random_uuid(), 'Product ' || n, 'product-' || n, 'fixed', 1000 + n * 990, now()
    FROM generate_series(1, 2) n
    """,
    """
    INSERT INTO plan (account_id, plan_id, current_version, created_at)
    SELECT $1, gen_random_uuid(), 1, now() FROM generate_series(1, 4)
    """,
    """
    INSERT INTO plan_version (account_id, plan_version_id, plan_id, version, name, period_months,
        default_payment_method, max_installments, created_at)
    SELECT $1, gen_random_uuid(), p.plan_id, 1, 'Plan', 1, 'pix', 1, now() FROM plan p WHERE p.account_id = $1
    """,
    """
    INSERT INTO plan_item (account_id, plan_version_id, position, product_id)
    SELECT $1, v.plan_version_id, p.place - 1, p.product_id
    FROM plan_version v,
        (SELECT product_id, row_number() OVER (ORDER BY name) AS place FROM product WHERE account_id = $1) p
    WHERE v.account_id = $1
    """,
    """
    INSERT INTO plan_discount (account_id, plan_version_id, position, priority, percent, from_cycle, to_cycle)
    SELECT $1, v.plan_version_id, 0, 0, 20, 1, 3 FROM plan_version v WHERE v.account_id = $1
    """,
)
_SUBSCRIBERS = (
    """
    INSERT INTO customer (account_id, customer_id, external_ref, name, name_key, email, email_key, created_at)
    SELECT $1, gen_random_uuid(), 'customer-' || n, 'Customer ' || n, 'customer ' || n,
        'customer' || n || '@example.com', 'customer' || n || '@example.com', now()
    FROM generate_series(1, $2::int4) n
    """,
    """
    INSERT INTO subscription (account_id, subscription_id, plan_id, plan_version_id, plan_version, customized,
        customer_id, status, charge_day, payment_method, payment_method_source, connection_id, start_cycle, cycle_count,
        next_period_start, next_due_date, generate_at, started_at)
    SELECT $1, gen_random_uuid(), v.plan_id, v.plan_version_id, 1, false, c.customer_id, 'active', d.day, 'pix',
        'plan_default', g.connection_id, 1, 0, d.due, d.due, d.due - interval '3 days', now()
    FROM (SELECT customer_id, row_number() OVER () AS n FROM customer WHERE account_id = $1) c
    JOIN (SELECT plan_id, plan_version_id, row_number() OVER () AS n FROM plan_version WHERE account_id = $1) v
        ON v.n = c.n % 4 + 1
    CROSS JOIN LATERAL (SELECT (c.n % 28 + 1)::int2 AS day, make_date(2026, 1, (c.n % 28 + 1)::int) AS due) d
    CROSS JOIN (SELECT connection_id FROM gateway_connection WHERE account_id = $1 LIMIT 1) g
    WHERE $2::int4 > 0
    """,
    """
    INSERT INTO subscription_terms (account_id, subscription_id, number, from_cycle, plan_version_id, reason,
        changed_at)
    SELECT s.account_id, s.subscription_id, 1, s.start_cycle, s.plan_version_id, 'enrolled', s.started_at
    FROM subscription s WHERE s.account_id = $1 AND $2::int4 > 0
    """,
    """
    UPDATE account_counter SET customers = $2, subscriptions_active = $2, products = 2, plans = 4,
        plan_items = 8
    WHERE account_id = $1
    """,
)


_FILLED = "account, account_counter, product, plan, plan_version, plan_item, customer, subscription, subscription_terms"


async def prepare(connection: Any, account_id: UUID, *, due: int, analyze: bool = True) -> None:
    """Give an account two products, four plans and `due` subscriptions whose first cycle is due."""
    await connection.execute(f"SET app.account = '{account_id}'")
    async with connection.transaction():
        for statement in _STATEMENTS:
            await connection.execute(statement, account_id)
        for statement in _SUBSCRIBERS:
            await connection.execute(statement, account_id, due)
    if analyze:
        await analyze_filled(connection)


async def analyze_filled(connection: Any) -> None:
    """Collect statistics of the tables that `prepare` fills.

    The tables of invoices are still empty. They are not analyzed, because PostgreSQL would then plan for empty tables.
    For tables that were never analyzed, as in a new installation, PostgreSQL makes better plans.
    """
    await connection.execute(f"ANALYZE {_FILLED}")


async def connected(url: str) -> Any:
    return await asyncpg.connect(url)
