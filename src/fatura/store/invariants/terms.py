"""Invariants of the terms that bill subscriptions (D-54)."""

from fatura.store.invariants.invariant import Invariant

TERMS: tuple[Invariant, ...] = (
    Invariant(
        "terms_history_is_current",
        "the newest terms in a subscription's history bill it, and they belong to its plan or to it alone",
        """
        SELECT s.subscription_id AS offender
        FROM subscription s
        LEFT JOIN (
            SELECT DISTINCT ON (h.subscription_id) h.subscription_id, h.from_cycle, h.plan_version_id
            FROM subscription_terms h WHERE h.account_id = $1 ORDER BY h.subscription_id, h.number DESC
        ) n ON n.subscription_id = s.subscription_id
        LEFT JOIN plan_version v ON v.account_id = $1 AND v.plan_version_id = s.plan_version_id
        WHERE s.account_id = $1 AND (
            n.plan_version_id IS DISTINCT FROM s.plan_version_id OR n.from_cycle > s.cycle_count + 1
            OR (v.plan_id, v.version, v.subscription_id) IS DISTINCT FROM
                (s.plan_id, s.plan_version, CASE WHEN s.customized THEN s.subscription_id END)
        )
        """,
    ),
    Invariant(
        "terms_history_is_ordered",
        "a subscription's history of terms starts with its start cycle, has no gap, and never goes back a cycle",
        """
        SELECT DISTINCT n.subscription_id AS offender
        FROM (
            SELECT h.subscription_id, h.number, h.from_cycle, lag(h.number) OVER w AS number_before,
                lag(h.from_cycle) OVER w AS cycle_before
            FROM subscription_terms h WHERE h.account_id = $1
            WINDOW w AS (PARTITION BY h.subscription_id ORDER BY h.number)
        ) n
        JOIN subscription s ON s.subscription_id = n.subscription_id
        WHERE s.account_id = $1 AND (
            n.number <> coalesce(n.number_before, 0) + 1
            OR CASE WHEN n.cycle_before IS NULL THEN n.from_cycle <> s.start_cycle
                ELSE n.from_cycle < n.cycle_before END
        )
        """,
    ),
    Invariant(
        "invoices_follow_terms_history",
        "each invoice was billed by the terms that the history of its subscription has for its cycle",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v
        LEFT JOIN (
            SELECT h.subscription_id, h.plan_version_id, h.from_cycle,
                lead(h.from_cycle) OVER (PARTITION BY h.subscription_id ORDER BY h.number) AS until_cycle
            FROM subscription_terms h WHERE h.account_id = $1
        ) n ON n.subscription_id = v.subscription_id AND n.from_cycle <= v.cycle
            AND (n.until_cycle IS NULL OR n.until_cycle > v.cycle)
        WHERE v.account_id = $1 AND n.plan_version_id IS DISTINCT FROM v.plan_version_id
        """,
    ),
    Invariant(
        "terms_changes_emitted",
        "each customized or propagated entry in a history of terms has its event, unless it is as old as a deleted one",
        """
        SELECT u.subscription_id AS offender
        FROM (
            SELECT h.subscription_id, h.reason, 1 AS changes, 0 AS events, h.changed_at
            FROM subscription_terms h WHERE h.account_id = $1 AND h.reason <> 'enrolled'
            UNION ALL
            SELECT e.subscription_id, 'customized', 0, 1, e.created_at
            FROM event e WHERE e.account_id = $1 AND e.type = 'subscription.customized'
            UNION ALL
            SELECT e.subscription_id, 'propagated', 0, 1, e.created_at
            FROM event e WHERE e.account_id = $1 AND e.type = 'subscription.terms_changed'
        ) u
        WHERE u.changed_at > coalesce((
            SELECT r.deleted_until FROM retention r WHERE r.account_id = $1 AND r.kind = 'events'
        ), '-infinity')
        GROUP BY u.subscription_id, u.reason HAVING sum(u.changes) <> sum(u.events)
        """,
    ),
    Invariant(
        "propagations_count_their_moves",
        "the propagations to a plan version have moved as many subscribers as the histories of terms show",
        """
        SELECT u.plan_version_id AS offender
        FROM (
            SELECT p.plan_version_id, p.moved, 0 AS changes FROM propagation p WHERE p.account_id = $1
            UNION ALL
            SELECT h.plan_version_id, 0, 1
            FROM subscription_terms h WHERE h.account_id = $1 AND h.reason = 'propagated'
        ) u
        GROUP BY u.plan_version_id HAVING sum(u.moved) <> sum(u.changes)
        """,
    ),
    Invariant(
        "propagation_leaves_nobody_behind",
        "after a plan's newest propagation, no subscriber of the plan is on an older version, unless it was skipped",
        """
        SELECT s.subscription_id AS offender
        FROM propagation p JOIN subscription s ON s.plan_id = p.plan_id
        WHERE p.account_id = $1 AND s.account_id = $1 AND p.status = 'done' AND s.status = 'active'
            AND NOT s.customized AND s.plan_version < p.version
            AND (p.from_version IS NULL OR s.plan_version = p.from_version)
            AND NOT EXISTS (
                SELECT FROM propagation_skip k WHERE k.account_id = $1 AND k.propagation_id = p.propagation_id
                    AND k.subscription_id = s.subscription_id
            )
            AND NOT EXISTS (
                SELECT FROM propagation x WHERE x.account_id = $1 AND x.plan_id = p.plan_id
                    AND x.propagation_id > p.propagation_id
            )
        """,
    ),
    Invariant(
        "connection_moves_are_emitted",
        "the moves between connections have moved as many subscriptions as events report, or more after old events "
        "were deleted",
        """
        SELECT c.account_id AS offender
        FROM account_counter c LEFT JOIN retention r ON r.account_id = $1 AND r.kind = 'events'
        CROSS JOIN (
            SELECT coalesce(sum(m.moved), 0) AS moved FROM connection_move m WHERE m.account_id = $1
        ) m CROSS JOIN (
            SELECT count(*) AS events FROM event e
            WHERE e.account_id = $1 AND e.type = 'subscription.gateway_changed'
        ) e
        WHERE c.account_id = $1 AND (m.moved < e.events OR (m.moved > e.events AND r.deleted_until IS NULL))
        """,
    ),
    Invariant(
        "connection_move_leaves_nobody_behind",
        "after a connection's newest move, no subscription that existed before is on it, unless it was skipped",
        """
        SELECT s.subscription_id AS offender
        FROM connection_move m JOIN subscription s ON s.connection_id = m.from_connection_id
        WHERE m.account_id = $1 AND s.account_id = $1 AND m.status = 'done' AND s.status = 'active'
            AND s.started_at < m.created_at
            AND NOT EXISTS (
                SELECT FROM connection_move_skip k WHERE k.account_id = $1
                    AND k.connection_move_id = m.connection_move_id AND k.subscription_id = s.subscription_id
            )
            AND NOT EXISTS (
                SELECT FROM connection_move x WHERE x.account_id = $1
                    AND m.from_connection_id IN (x.from_connection_id, x.to_connection_id)
                    AND x.connection_move_id > m.connection_move_id
            )
        """,
    ),
    Invariant(
        "items_follow_terms",
        "an invoice has the products and months of the terms that billed it",
        """
        SELECT u.invoice_id AS offender
        FROM (
            SELECT i.invoice_id, i.position, i.product_id, i.months, 1 AS billed, 0 AS agreed
            FROM invoice_item i WHERE i.account_id = $1
            UNION ALL
            SELECT v.invoice_id, p.position, p.product_id, t.period_months, 0, 1
            FROM invoice v
            JOIN plan_version t ON t.plan_version_id = v.plan_version_id
            JOIN plan_item p ON p.plan_version_id = v.plan_version_id
            WHERE v.account_id = $1 AND t.account_id = $1 AND p.account_id = $1
        ) u
        GROUP BY u.invoice_id, u.position, u.product_id, u.months HAVING sum(u.billed) <> 1 OR sum(u.agreed) <> 1
        """,
    ),
)
