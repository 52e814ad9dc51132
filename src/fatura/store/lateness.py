"""How late the work of each lane is, over all accounts. Most reads need only the first entry of an index."""

from datetime import datetime, timedelta

from fatura.store.db import Discovery

MOST_COUNTED = 100_000
"""Limit of counting due subscriptions, so that a scrape of the metrics does not read a million rows."""


async def discover_oldest(discovery: Discovery, *, real_now: datetime) -> dict[str, timedelta]:
    """Return the age of the oldest due work of each lane, or 0 if nothing is due.

    Endpoints that are down, which only merchants can repair, and accounts with an advancing test clock are left out.
    """
    rows = await discovery.fetch(
        """
        SELECT w.lane, max($1::timestamptz + a.clock_offset - w.due_at) AS age
        FROM account a CROSS JOIN LATERAL (
            SELECT 'generation' AS lane, min(s.generate_at) AS due_at FROM subscription s
            WHERE s.account_id = a.account_id AND s.status = 'active'
            UNION ALL
            SELECT 'pricing', min(p.next_attempt_at) FROM price_pull p
            WHERE p.account_id = a.account_id AND p.next_attempt_at IS NOT NULL
            UNION ALL
            SELECT 'issuance', min(v.next_attempt_at) FROM invoice v
            WHERE v.account_id = a.account_id AND v.status = 'ready' AND v.next_attempt_at IS NOT NULL
            UNION ALL
            SELECT 'reconciliation', min(v.next_attempt_at) FROM invoice v
            WHERE v.account_id = a.account_id AND v.status = 'issued' AND v.next_attempt_at IS NOT NULL
            UNION ALL
            SELECT 'reconciliation', min(v.next_attempt_at) FROM invoice v
            WHERE v.account_id = a.account_id AND v.status = 'overdue' AND v.next_attempt_at IS NOT NULL
            UNION ALL
            SELECT 'mirroring', min(m.next_attempt_at) FROM product_mirror m
            WHERE m.account_id = a.account_id AND m.next_attempt_at IS NOT NULL
            UNION ALL
            SELECT 'push', min(greatest(d.next_attempt_at, h.next_attempt_at)) FROM delivery d
            JOIN webhook h ON h.account_id = d.account_id
            WHERE d.account_id = a.account_id AND h.disabled_at IS NULL AND h.failures = 0
                AND d.next_attempt_at IS NOT NULL AND d.waits IS NOT TRUE
        ) w
        WHERE NOT EXISTS (SELECT FROM test_clock c WHERE c.account_id = a.account_id AND c.status = 'advancing')
        GROUP BY w.lane
        """,
        real_now,
    )
    return {row["lane"]: max(row["age"] or timedelta(), timedelta()) for row in rows}


async def discover_due_cycles(discovery: Discovery, *, real_now: datetime) -> int:
    """Return how many due subscriptions are not yet billed, at most MOST_COUNTED."""
    (row,) = await discovery.fetch(
        """
        SELECT count(*) AS total FROM (
            SELECT s.account_id FROM account a JOIN subscription s ON s.account_id = a.account_id
            WHERE s.status = 'active' AND s.generate_at <= $1::timestamptz + a.clock_offset LIMIT $2
        ) d
        """,
        real_now,
        MOST_COUNTED,
    )
    return row["total"]


async def discover_untaken_events(discovery: Discovery) -> int:
    """Return how many events have no delivery yet, for enabled webhooks whose endpoint is up."""
    (row,) = await discovery.fetch(
        """
        SELECT coalesce(sum(n.last_sequence - w.fanned_out_to), 0)::bigint AS total
        FROM webhook w JOIN account_counter n ON n.account_id = w.account_id
        WHERE w.disabled_at IS NULL AND w.failures = 0
        """
    )
    return row["total"]
