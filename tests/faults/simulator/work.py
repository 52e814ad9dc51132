"""Find out when each lane of a simulated world next has work, so that the clock can skip idle time."""

from datetime import datetime

from tests.faults.simulator.side import World

_NEXT = """
SELECT lane, min(at) AS at FROM (
    SELECT 'generation' AS lane, min(coalesce(put_off_until, generate_at)) AS at FROM subscription
    WHERE status = 'active'
    UNION ALL
    SELECT 'pricing', least(min(greatest(next_attempt_at, lease_until)), min(warn_at)) FROM price_pull
        WHERE next_attempt_at IS NOT NULL OR warn_at IS NOT NULL
    UNION ALL
    SELECT 'pricing', min(open_until) FROM pricing_attempt WHERE outcome IS NULL
    UNION ALL
    SELECT 'issuance', min(greatest(next_attempt_at, lease_until)) FROM invoice
        WHERE status = 'ready' AND next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'reconciliation', min(greatest(next_attempt_at, lease_until)) FROM invoice
        WHERE status IN ('issued', 'overdue', 'paid', 'canceled') AND next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'reconciliation', min(next_check_at) FROM late_charge_check
    UNION ALL
    SELECT 'reconciliation', min(greatest(next_attempt_at, lease_until)) FROM refund_request
        WHERE next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'propagation', min(worked_at) FROM propagation WHERE status = 'running'
    UNION ALL
    SELECT 'reconciliation', min(next_look_at) FROM unmatched_charge WHERE next_look_at IS NOT NULL
    UNION ALL
    SELECT 'reconciliation', min(next_step_at) FROM poll_round WHERE next_step_at IS NOT NULL
    UNION ALL
    SELECT 'sweep', min(greatest(next_sweep_at, lease_until)) FROM connection_sweep
    UNION ALL
    SELECT 'gateway_probe', min(greatest(next_probe_at, lease_until)) FROM connection_health
        WHERE next_probe_at IS NOT NULL
    UNION ALL
    SELECT 'mirroring', min(greatest(next_attempt_at, lease_until)) FROM product_mirror
        WHERE next_attempt_at IS NOT NULL
    UNION ALL
    SELECT CASE WHEN w.failures > 0 THEN 'probe' ELSE 'push' END, min(greatest(w.next_attempt_at, w.lease_until, d.at))
    FROM webhook w
    JOIN account_counter n USING (account_id)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN n.last_sequence > w.fanned_out_to THEN to_timestamp(0) ELSE min(o.next_attempt_at) END
            AS at
        FROM (
            SELECT DISTINCT ON (coalesce(x.ordered_by::text, x.sequence::text)) x.next_attempt_at FROM delivery x
            WHERE x.account_id = w.account_id AND x.next_attempt_at IS NOT NULL
            ORDER BY coalesce(x.ordered_by::text, x.sequence::text), x.sequence
        ) o
    ) d
    WHERE w.disabled_at IS NULL AND d.at IS NOT NULL GROUP BY 1
    UNION ALL
    SELECT 'retention', min(expires_at) FROM idempotency_key
) u WHERE at IS NOT NULL GROUP BY lane ORDER BY lane
"""


async def look(world: World) -> dict[str, datetime]:
    """Return the next due time of each lane that has work."""

    async def work() -> dict[str, datetime]:
        rows = await world.observer.fetch(_NEXT)
        return {row["lane"]: row["at"] for row in rows}

    return await world.schedule.io("look for work", work)
