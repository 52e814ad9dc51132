"""Measure how late the work of each lane is, over all accounts."""

from datetime import datetime, timedelta
from typing import LiteralString

from fatura.store.db import Discovery

MOST_COUNTED = 100_000
"""Subscriptions are counted up to this number, so that a scrape of the metrics does not read a million rows."""


DISCOVER_OLDEST: LiteralString = """
SELECT w.lane, max($1::timestamptz + a.clock_offset - greatest(w.due_at, a.restored_at, a.resumed_at)) FILTER (
        WHERE a.suspended_at IS NULL OR w.lane IN ('reconciliation', 'sweep', 'gateway_probe', 'erasure')
    ) AS age
FROM account a CROSS JOIN LATERAL (
    SELECT 'generation' AS lane, min(s.generate_at) AS due_at FROM subscription s
    WHERE s.account_id = a.account_id AND s.status = 'active' AND s.put_off_until IS NULL
    UNION ALL
    SELECT 'generation', min(s.put_off_until) FROM subscription s
    WHERE s.account_id = a.account_id AND s.status = 'active' AND s.put_off_until IS NOT NULL
    UNION ALL
    SELECT 'pricing', min(p.next_attempt_at) FROM price_pull p
    WHERE p.account_id = a.account_id AND p.next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'pricing', min(p.warn_at) FROM price_pull p
    WHERE p.account_id = a.account_id AND p.warn_at IS NOT NULL
    UNION ALL
    SELECT 'pricing', min(t.open_until) + a.clock_offset FROM pricing_attempt t
    WHERE t.account_id = a.account_id AND t.outcome IS NULL
    UNION ALL
    SELECT 'issuance', min(v.next_attempt_at) FROM invoice v
    WHERE v.account_id = a.account_id AND v.status = 'ready' AND v.next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'reconciliation', min(n.next_attempt_at) FROM connection_health h CROSS JOIN LATERAL (
        SELECT v.next_attempt_at FROM invoice v
        WHERE v.account_id = a.account_id AND v.connection_id = h.connection_id AND v.polls_first
            AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at IS NOT NULL
        ORDER BY v.next_attempt_at LIMIT 1
    ) n WHERE h.account_id = a.account_id
    UNION ALL
    SELECT 'reconciliation', min(n.next_attempt_at) FROM connection_health h CROSS JOIN LATERAL (
        SELECT v.next_attempt_at FROM invoice v
        WHERE v.account_id = a.account_id AND v.connection_id = h.connection_id AND NOT v.polls_first
            AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at IS NOT NULL
        ORDER BY v.next_attempt_at LIMIT 1
    ) n WHERE h.account_id = a.account_id
    UNION ALL
    SELECT 'reconciliation', min(l.next_check_at) FROM late_charge_check l
    WHERE l.account_id = a.account_id AND l.next_check_at IS NOT NULL
    UNION ALL
    SELECT 'reconciliation', min(f.next_attempt_at) FROM refund_request f
    WHERE f.account_id = a.account_id AND f.next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'reconciliation', min(x.next_look_at) FROM unmatched_charge x
    WHERE x.account_id = a.account_id AND x.next_look_at IS NOT NULL
    UNION ALL
    SELECT 'reconciliation', min(l.next_step_at) FROM poll_round l
    WHERE l.account_id = a.account_id AND l.next_step_at IS NOT NULL
    UNION ALL
    SELECT 'sweep', min(c.next_sweep_at) FROM connection_sweep c WHERE c.account_id = a.account_id
    UNION ALL
    SELECT 'gateway_probe', min(h.next_probe_at) FROM connection_health h
    WHERE h.account_id = a.account_id AND h.next_probe_at IS NOT NULL
    UNION ALL
    SELECT 'propagation', min(r.worked_at) FROM propagation r
    WHERE r.account_id = a.account_id AND r.status = 'running'
    UNION ALL
    SELECT 'propagation', min(o.worked_at) FROM connection_move o
    WHERE o.account_id = a.account_id AND o.status = 'running'
    UNION ALL
    SELECT 'erasure', min(z.requested_at) FROM erasure z WHERE z.account_id = a.account_id AND z.stage <> 'done'
    UNION ALL
    SELECT 'mirroring', min(m.next_attempt_at) FROM product_mirror m
    WHERE m.account_id = a.account_id AND m.next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'push', min(greatest(d.next_attempt_at, h.next_attempt_at)) FROM delivery d
    JOIN webhook h ON h.account_id = d.account_id
    WHERE d.account_id = a.account_id AND h.disabled_at IS NULL AND h.failures = 0
        AND d.next_attempt_at IS NOT NULL AND d.waits IS NOT TRUE
) w
WHERE NOT EXISTS (
    SELECT FROM test_clock c WHERE c.account_id = a.account_id AND c.status = 'advancing' AND a.suspended_at IS NULL
)
GROUP BY w.lane
"""
"""Returns the age of the oldest due work of each lane, by the clocks of the accounts."""


async def discover_oldest(discovery: Discovery, *, real_now: datetime) -> dict[str, timedelta]:
    """Return the age of the oldest due work of each lane, or 0 if nothing is due.

    The result has the lanes of `due_times.due_by_lane`, and `erasure` and `retention`. For `retention`, only expired
    Idempotency-Keys count here. Deliveries to an endpoint that is down are left out, because only the merchant can
    repair the endpoint. Accounts whose test clock is advancing are left out too, and so is work that waits until a
    suspended account is resumed. If an account was resumed or restored while work was due, the age of this work is
    counted from the resumption or the end of the restore.
    """
    rows = await discovery.fetch(DISCOVER_OLDEST, real_now)
    kept = await discovery.fetch(
        "SELECT 'retention' AS lane, $1::timestamptz - min(i.expires_at) AS age FROM idempotency_key i",
        real_now,
    )
    return {row["lane"]: max(row["age"] or timedelta(), timedelta()) for row in [*rows, *kept]}


async def discover_due_cycles(discovery: Discovery, *, real_now: datetime) -> int:
    """Return the number of subscriptions with a cycle due for generation, at most MOST_COUNTED.

    Suspended accounts are left out, and so are the subscriptions that `discover_put_off` counts.
    """
    (row,) = await discovery.fetch(
        """
        SELECT count(*) AS total FROM (
            SELECT s.account_id FROM account a JOIN subscription s ON s.account_id = a.account_id
            WHERE s.status = 'active' AND s.put_off_until IS NULL AND a.suspended_at IS NULL
                AND s.generate_at <= $1::timestamptz + a.clock_offset LIMIT $2
        ) d
        """,
        real_now,
        MOST_COUNTED,
    )
    return row["total"]


async def discover_put_off(discovery: Discovery) -> int:
    """Return the number of subscriptions whose next invoice could not be generated, at most MOST_COUNTED."""
    (row,) = await discovery.fetch(
        """
        SELECT count(*) AS total FROM (
            SELECT s.account_id FROM subscription s
            WHERE s.status = 'active' AND s.put_off_until IS NOT NULL LIMIT $1
        ) d
        """,
        MOST_COUNTED,
    )
    return row["total"]


async def discover_untaken_events(discovery: Discovery) -> int:
    """Return how many events have no delivery yet. Count only the events of enabled webhooks whose endpoint is up.

    Suspended accounts are left out.
    """
    (row,) = await discovery.fetch(
        """
        SELECT coalesce(sum(n.last_sequence - w.fanned_out_to), 0)::bigint AS total
        FROM webhook w JOIN account_counter n ON n.account_id = w.account_id
        JOIN account a ON a.account_id = w.account_id
        WHERE w.disabled_at IS NULL AND w.failures = 0 AND a.suspended_at IS NULL
        """
    )
    return row["total"]
