"""Invariants of webhook deliveries."""

from fatura.store.invariants.invariant import Invariant

DELIVERIES: tuple[Invariant, ...] = (
    Invariant(
        "delivered_in_order",
        "an invoice's events are delivered in the order of their numbers, and none while an earlier one is open",
        """
        SELECT o.ordered_by AS offender
        FROM (
            SELECT d.ordered_by, d.delivered_at,
                bool_or(d.next_attempt_at IS NOT NULL) OVER w AS passed_an_open_one,
                max(d.delivered_at) OVER w AS delivered_before
            FROM delivery d WHERE d.account_id = $1 AND d.ordered_by IS NOT NULL
            WINDOW w AS (
                PARTITION BY d.ordered_by ORDER BY d.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )
        ) o
        WHERE o.delivered_at IS NOT NULL AND (o.passed_an_open_one OR o.delivered_before > o.delivered_at)
        """,
    ),
    Invariant(
        "delivery_turn_advanced",
        "the first open delivery of an invoice waits only until the closing of an earlier one has been processed",
        """
        SELECT DISTINCT d.ordered_by AS offender
        FROM delivery d
        WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits
            AND NOT EXISTS (
                SELECT FROM delivery b
                WHERE b.account_id = $1 AND b.ordered_by = d.ordered_by AND b.sequence < d.sequence
                    AND b.next_attempt_at IS NOT NULL
            )
            AND NOT EXISTS (
                SELECT FROM delivery c JOIN event e ON e.account_id = $1 AND e.sequence = c.sequence
                WHERE c.account_id = $1 AND e.invoice_id = d.ordered_by AND c.next_attempt_at IS NULL
                    AND c.waits IS NOT NULL
            )
        """,
    ),
    Invariant(
        "delivery_attempts_logged",
        "every delivery attempt is in the log until it is old, and a delivered event has a successful one",
        """
        SELECT e.event_id AS offender
        FROM (
            SELECT u.sequence
            FROM (
                SELECT d.sequence, d.attempts, (d.delivered_at IS NOT NULL)::int AS delivered, 0 AS logged,
                    0 AS successful
                FROM delivery d WHERE d.account_id = $1
                UNION ALL
                SELECT a.sequence, 0, 0, 1, (a.outcome = 'delivered')::int
                FROM delivery_attempt a WHERE a.account_id = $1
            ) u
            GROUP BY u.sequence
            HAVING sum(u.attempts) < sum(u.logged) OR (
                (sum(u.attempts) > sum(u.logged) OR (sum(u.delivered) > 0 AND sum(u.successful) = 0))
                AND u.sequence > coalesce((
                    SELECT r.deleted_to FROM retention r WHERE r.account_id = $1 AND r.kind = 'deliveries'
                ), 0)
            )
        ) x JOIN event e ON e.sequence = x.sequence
        WHERE e.account_id = $1
        """,
    ),
    Invariant(
        "deliveries_follow_events",
        "deliveries exist only for events up to fanned_out_to, which does not exceed the last event",
        """
        SELECT w.account_id AS offender
        FROM webhook w JOIN account_counter n ON n.account_id = $1
        WHERE w.account_id = $1 AND (
            w.fanned_out_to > n.last_sequence
            OR EXISTS (SELECT FROM delivery d WHERE d.account_id = $1 AND d.sequence > w.fanned_out_to)
        )
        """,
    ),
    Invariant(
        "deliveries_are_found",
        "workers look for due deliveries of an enabled webhook, and for its events without deliveries, in time",
        """
        SELECT w.account_id AS offender
        FROM webhook w JOIN account_counter n ON n.account_id = $1 JOIN account a ON a.account_id = $1
        WHERE w.account_id = $1 AND w.disabled_at IS NULL AND (
            NOT n.webhook_enabled
            OR (n.last_sequence > w.fanned_out_to AND NOT n.untaken_events)
            OR EXISTS (
                SELECT FROM delivery d
                WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits IS NOT TRUE
                    AND coalesce(w.push_at, 'infinity'::timestamptz)
                        > greatest(d.next_attempt_at, $3::timestamptz + a.clock_offset)
                    AND NOT EXISTS (
                        SELECT FROM delivery b
                        WHERE b.account_id = $1 AND b.ordered_by = d.ordered_by AND b.sequence < d.sequence
                            AND b.next_attempt_at IS NOT NULL
                    )
            )
            OR (w.push_at IS NULL AND EXISTS (
                SELECT FROM delivery d
                WHERE d.account_id = $1 AND d.next_attempt_at IS NULL AND d.waits IS NOT NULL
            ))
        )
        """,
        needs="real_now",
    ),
    Invariant(
        "deliveries_have_a_webhook",
        "open deliveries have a webhook",
        """
        SELECT e.event_id AS offender FROM delivery d JOIN event e ON e.sequence = d.sequence
        WHERE d.account_id = $1 AND e.account_id = $1 AND d.next_attempt_at IS NOT NULL
            AND NOT EXISTS (SELECT FROM webhook w WHERE w.account_id = $1)
        """,
    ),
)
