"""Invariants of billing cycles, periods and due dates."""

from fatura.store.invariants.invariant import Invariant

CYCLES: tuple[Invariant, ...] = (
    Invariant(
        "cycles_contiguous",
        "a subscription has exactly one invoice for each cycle from its start cycle to cycleCount, and no other",
        """
        SELECT s.subscription_id AS offender
        FROM subscription s
        LEFT JOIN invoice v ON v.account_id = $1 AND v.subscription_id = s.subscription_id
        WHERE s.account_id = $1
        GROUP BY s.subscription_id, s.start_cycle, s.cycle_count
        HAVING count(v.invoice_id) <> s.cycle_count - s.start_cycle + 1
            OR min(v.cycle) <> s.start_cycle OR max(v.cycle) <> s.cycle_count
        """,
    ),
    Invariant(
        "periods_contiguous",
        "each period starts on the day after the previous period ends, and so does the next period to be billed",
        """
        SELECT n.offender FROM (
            SELECT v.subscription_id AS offender, v.period_end,
                lead(v.period_start) OVER (PARTITION BY v.subscription_id ORDER BY v.cycle) AS following
            FROM invoice v WHERE v.account_id = $1
        ) n
        JOIN subscription s ON s.subscription_id = n.offender
        WHERE s.account_id = $1 AND coalesce(n.following, s.next_period_start) <> n.period_end + 1
        """,
    ),
    Invariant(
        "due_dates_follow_charge_day",
        "periods end on the day that D-4 defines, and each due date but the first is the first day of its period",
        """
        SELECT DISTINCT n.subscription_id AS offender FROM (
            SELECT p.subscription_id, p.charge_day, p.cycle, p.start_cycle, p.cycle_count, p.period_start, p.due_date,
                p.following, p.next_due_date, p.earliest, p.earliest - (extract(day FROM p.earliest)::int - 1) AS month
            FROM (
                SELECT v.subscription_id, v.cycle, v.period_start, v.due_date, v.period_end + 1 AS following,
                    s.charge_day, s.start_cycle, s.cycle_count, s.next_due_date,
                    (v.period_start - greatest(extract(day FROM v.period_start)::int - 28, 0)
                        + i.months * interval '1 month')::date AS earliest
                FROM invoice v
                JOIN invoice_item i ON i.invoice_id = v.invoice_id AND i.position = 0
                JOIN subscription s ON s.subscription_id = v.subscription_id
                WHERE v.account_id = $1 AND i.account_id = $1 AND s.account_id = $1
            ) p
        ) n
        WHERE n.following <> CASE
                WHEN n.month + (n.charge_day - 1) >= n.earliest THEN n.month + (n.charge_day - 1)
                ELSE (n.month + interval '1 month')::date + (n.charge_day - 1)
            END
            OR (n.cycle > n.start_cycle AND n.due_date <> n.period_start)
            OR (n.cycle = n.cycle_count AND n.next_due_date <> n.following)
        """,
    ),
    Invariant(
        "no_invoice_after_cancellation",
        "no invoice was generated after its subscription was canceled",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v JOIN subscription s ON s.subscription_id = v.subscription_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND v.created_at > s.canceled_at
        """,
    ),
    Invariant(
        "put_off_subscriptions_reported",
        "a subscription whose next invoice was put off has an event that says so, unless older events were deleted",
        """
        SELECT s.subscription_id AS offender FROM subscription s
        WHERE s.account_id = $1 AND s.status = 'active' AND s.put_off_until IS NOT NULL AND NOT EXISTS (
            SELECT FROM event e
            WHERE e.account_id = $1 AND e.type = 'subscription.billing_failed' AND e.subscription_id = s.subscription_id
        ) AND s.generate_at > coalesce((
            SELECT r.deleted_until FROM retention r WHERE r.account_id = $1 AND r.kind = 'events'
        ), '-infinity')
        """,
    ),
    Invariant(
        "due_work_is_claimed_in_an_hour",
        "no generation, issuance, poll, refund, look, price call, probe or batch is an hour late, no sweep 25 hours; "
        "polls and looks may wait while their connection's budget is used up",
        """
        SELECT u.offender FROM (
            SELECT s.subscription_id AS offender, coalesce(s.put_off_until, s.generate_at) AS due_at FROM subscription s
            WHERE s.account_id = $1 AND s.status = 'active'
            UNION ALL
            SELECT v.invoice_id, v.next_attempt_at FROM invoice v
            WHERE v.account_id = $1 AND v.next_attempt_at IS NOT NULL AND (v.status = 'ready' OR NOT EXISTS (
                SELECT FROM connection_health b WHERE b.account_id = $1 AND b.connection_id = v.connection_id
                    AND b.polls_from > $3::timestamptz - interval '1 minute'
                    AND b.polls_from <= $3::timestamptz + interval '3 minutes'
            ))
            UNION ALL
            SELECT p.invoice_id, p.next_attempt_at FROM price_pull p
            WHERE p.account_id = $1 AND p.next_attempt_at IS NOT NULL
            UNION ALL
            SELECT r.propagation_id, r.worked_at FROM propagation r WHERE r.account_id = $1 AND r.status = 'running'
            UNION ALL
            SELECT f.refund_id, f.next_attempt_at FROM refund_request f
            WHERE f.account_id = $1 AND f.next_attempt_at IS NOT NULL
            UNION ALL
            SELECT o.connection_move_id, o.worked_at FROM connection_move o
            WHERE o.account_id = $1 AND o.status = 'running'
            UNION ALL
            SELECT h.connection_id, h.next_probe_at FROM connection_health h
            WHERE h.account_id = $1 AND h.next_probe_at IS NOT NULL
            UNION ALL
            SELECT x.connection_id, x.next_look_at FROM unmatched_charge x
            WHERE x.account_id = $1 AND x.next_look_at IS NOT NULL AND NOT EXISTS (
                SELECT FROM connection_health b WHERE b.account_id = $1 AND b.connection_id = x.connection_id
                    AND b.polls_from > $3::timestamptz - interval '1 minute'
                    AND b.polls_from <= $3::timestamptz + interval '3 minutes'
            )
            UNION ALL
            SELECT l.connection_id, l.next_step_at FROM poll_round l
            WHERE l.account_id = $1 AND l.next_step_at IS NOT NULL
            UNION ALL
            SELECT w.connection_id, w.next_sweep_at + interval '1 day' FROM connection_sweep w WHERE w.account_id = $1
        ) u JOIN account a ON a.account_id = $1
        WHERE greatest(u.due_at, a.restored_at, a.resumed_at) < $3::timestamptz + a.clock_offset - interval '1 hour'
            AND a.recovering_since IS NULL AND a.suspended_at IS NULL
            AND NOT EXISTS (SELECT FROM test_clock c WHERE c.account_id = $1 AND c.status = 'advancing')
        """,
        needs="real_now",
    ),
    Invariant(
        "leases_expire",
        "no lease exceeds three minutes, and due work is claimed within a minute after its lease expired",
        """
        SELECT u.offender FROM (
            SELECT v.invoice_id AS offender, v.lease_until, v.next_attempt_at FROM invoice v
            WHERE v.account_id = $1 AND v.lease_until IS NOT NULL
            UNION ALL
            SELECT p.invoice_id, p.lease_until, p.next_attempt_at FROM price_pull p
            WHERE p.account_id = $1 AND p.lease_until IS NOT NULL
            UNION ALL
            SELECT m.product_id, m.lease_until, m.next_attempt_at FROM product_mirror m
            WHERE m.account_id = $1 AND m.lease_until IS NOT NULL
            UNION ALL
            SELECT f.refund_id, f.lease_until, f.next_attempt_at FROM refund_request f
            WHERE f.account_id = $1 AND f.lease_until IS NOT NULL
            UNION ALL
            SELECT h.connection_id, h.lease_until, h.next_probe_at FROM connection_health h
            WHERE h.account_id = $1 AND h.lease_until IS NOT NULL
            UNION ALL
            SELECT x.connection_id, x.lease_until, x.next_sweep_at FROM connection_sweep x
            WHERE x.account_id = $1 AND x.lease_until IS NOT NULL
            UNION ALL
            SELECT w.account_id, w.lease_until, greatest(w.next_attempt_at, q.due_at) FROM webhook w CROSS JOIN (
                SELECT min(d.next_attempt_at) AS due_at FROM delivery d
                WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits IS NOT TRUE
                UNION ALL
                SELECT min(e.created_at) FROM event e WHERE e.account_id = $1
                    AND e.sequence = (SELECT x.fanned_out_to + 1 FROM webhook x WHERE x.account_id = $1)
            ) q WHERE w.account_id = $1 AND w.lease_until IS NOT NULL AND w.disabled_at IS NULL
                AND q.due_at IS NOT NULL
        ) u JOIN account a ON a.account_id = $1
        WHERE u.lease_until > $3::timestamptz + interval '3 minutes' OR (
            u.lease_until < $3::timestamptz - interval '1 minute'
            AND greatest(u.next_attempt_at, a.restored_at, a.resumed_at)
                < $3::timestamptz + a.clock_offset - interval '1 minute'
            AND a.recovering_since IS NULL AND a.suspended_at IS NULL
        )
        """,
        needs="real_now",
    ),
)
