"""SQL that finds when the next work of each lane is due, and which parts of reconciliation are due now."""

from datetime import datetime
from typing import LiteralString

from fatura.store.db import Tx

DUE_BY_LANE: LiteralString = """
SELECT n.lane, min(n.due_at) AS due_at FROM (
    SELECT 'propagation' AS lane, (SELECT min(r.worked_at) FROM propagation r
        WHERE r.account_id = $1 AND r.status = 'running') AS due_at
    UNION ALL
    SELECT 'propagation', (SELECT min(o.worked_at) FROM connection_move o
        WHERE o.account_id = $1 AND o.status = 'running')
    UNION ALL
    SELECT 'generation', (SELECT min(s.generate_at) FROM subscription s
        WHERE s.account_id = $1 AND s.status = 'active' AND s.put_off_until IS NULL)
    UNION ALL
    SELECT 'generation', (SELECT min(s.put_off_until) FROM subscription s
        WHERE s.account_id = $1 AND s.status = 'active' AND s.put_off_until IS NOT NULL)
    UNION ALL
    SELECT 'pricing', (SELECT min(p.next_attempt_at) FROM price_pull p
        WHERE p.account_id = $1 AND p.next_attempt_at IS NOT NULL)
    UNION ALL
    SELECT 'pricing', (SELECT min(p.warn_at) FROM price_pull p
        WHERE p.account_id = $1 AND p.warn_at IS NOT NULL)
    UNION ALL
    SELECT 'issuance', (SELECT min(v.next_attempt_at) FROM invoice v
        WHERE v.account_id = $1 AND v.status = 'ready' AND v.next_attempt_at IS NOT NULL)
    UNION ALL
    SELECT 'reconciliation', (
        SELECT min(n.next_attempt_at) FROM connection_health h CROSS JOIN LATERAL (
            SELECT v.next_attempt_at FROM invoice v
            WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND v.polls_first
                AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at IS NOT NULL
            ORDER BY v.next_attempt_at LIMIT 1
        ) n WHERE h.account_id = $1
    )
    UNION ALL
    SELECT 'reconciliation', (
        SELECT min(n.next_attempt_at) FROM connection_health h CROSS JOIN LATERAL (
            SELECT v.next_attempt_at FROM invoice v
            WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND NOT v.polls_first
                AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at IS NOT NULL
            ORDER BY v.next_attempt_at LIMIT 1
        ) n WHERE h.account_id = $1
    )
    UNION ALL
    SELECT 'reconciliation', (SELECT min(l.next_check_at) FROM late_charge_check l
        WHERE l.account_id = $1 AND l.next_check_at IS NOT NULL)
    UNION ALL
    SELECT 'reconciliation', (SELECT min(f.next_attempt_at) FROM refund_request f
        WHERE f.account_id = $1 AND f.next_attempt_at IS NOT NULL)
    UNION ALL
    SELECT 'reconciliation', (SELECT min(x.next_look_at) FROM unmatched_charge x
        WHERE x.account_id = $1 AND x.next_look_at IS NOT NULL)
    UNION ALL
    SELECT 'reconciliation', (SELECT min(l.next_step_at) FROM poll_round l
        WHERE l.account_id = $1 AND l.next_step_at IS NOT NULL)
    UNION ALL
    SELECT 'sweep', (SELECT min(x.next_sweep_at) FROM connection_sweep x WHERE x.account_id = $1)
    UNION ALL
    SELECT 'gateway_probe', (SELECT min(h.next_probe_at) FROM connection_health h
        WHERE h.account_id = $1 AND h.next_probe_at IS NOT NULL)
    UNION ALL
    SELECT 'mirroring', (SELECT min(m.next_attempt_at) FROM product_mirror m
        WHERE m.account_id = $1 AND m.next_attempt_at IS NOT NULL)
    UNION ALL
    SELECT 'push', (SELECT min(greatest(w.next_attempt_at, u.due_at)) FROM webhook w CROSS JOIN (
        (SELECT n.due_at FROM (
            SELECT d.sequence, d.ordered_by, d.next_attempt_at AS due_at FROM delivery d
            WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits IS NOT TRUE
            ORDER BY d.next_attempt_at
        ) n
        WHERE NOT EXISTS (
            SELECT FROM delivery b
            WHERE b.account_id = $1 AND b.ordered_by = n.ordered_by AND b.sequence < n.sequence
                AND b.next_attempt_at IS NOT NULL
        )
        ORDER BY n.due_at LIMIT 1)
        UNION ALL
        SELECT coalesce(d.delivered_at, d.given_up_at) FROM delivery d
        WHERE d.account_id = $1 AND d.next_attempt_at IS NULL AND d.waits IS NOT NULL
        UNION ALL
        SELECT e.created_at FROM event e
        WHERE e.account_id = $1
            AND e.sequence = (SELECT x.fanned_out_to + 1 FROM webhook x WHERE x.account_id = $1)
    ) u WHERE w.account_id = $1 AND w.disabled_at IS NULL)
) n WHERE n.due_at IS NOT NULL GROUP BY n.lane
"""


async def next_due_at(tx: Tx) -> datetime | None:
    """Return when the next work of any lane is due on the account's clock, or None."""
    return min((await due_by_lane(tx)).values(), default=None)


async def due_by_lane(tx: Tx) -> dict[str, datetime]:
    """Return when the next work of each lane is due on the account's clock. Lanes without work are left out."""
    rows = await tx.fetch(DUE_BY_LANE)
    return {row["lane"]: row["due_at"] for row in rows}


async def due_reconciliation(tx: Tx, *, now: datetime) -> frozenset[str]:
    """Return which parts of reconciliation have due work: `rounds`, `polls`, `late_checks`, `refunds` or `looks`."""
    due = await tx.fetchrow(
        """
        SELECT
            EXISTS (SELECT FROM poll_round p WHERE p.account_id = $1 AND p.next_step_at <= $2) AS rounds,
            EXISTS (
                SELECT FROM connection_health h CROSS JOIN LATERAL (
                    SELECT v.next_attempt_at FROM invoice v
                    WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND v.polls_first
                        AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                    ORDER BY v.next_attempt_at LIMIT 1
                ) n WHERE h.account_id = $1
                UNION ALL
                SELECT FROM connection_health h CROSS JOIN LATERAL (
                    SELECT v.next_attempt_at FROM invoice v
                    WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND NOT v.polls_first
                        AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                    ORDER BY v.next_attempt_at LIMIT 1
                ) n WHERE h.account_id = $1
            ) AS polls,
            EXISTS (
                SELECT FROM late_charge_check l WHERE l.account_id = $1 AND l.next_check_at <= $2
            ) AS late_checks,
            EXISTS (SELECT FROM refund_request r WHERE r.account_id = $1 AND r.next_attempt_at <= $2) AS refunds,
            EXISTS (SELECT FROM unmatched_charge u WHERE u.account_id = $1 AND u.next_look_at <= $2) AS looks
        """,
        now,
    )
    assert due is not None, "the statement always returns one row"
    return frozenset(part for part, is_due in due.items() if is_due)
