"""Invariants of the ledger: its entries must agree with invoices, events, refund requests and sandbox charges."""

from fatura.store.invariants.invariant import Invariant

PAYMENTS: tuple[Invariant, ...] = (
    Invariant(
        "paid_invoices_are_covered",
        "an invoice is paid if the merchant holds its total, and the payments of a paid invoice cover its total",
        """
        SELECT u.invoice_id AS offender
        FROM (
            SELECT v.invoice_id, v.status, v.total_cents, 0 AS paid_cents, 0 AS held_cents
            FROM invoice v
            WHERE v.account_id = $1 AND v.total_cents > 0 AND v.status IN ('ready', 'issued', 'overdue', 'paid')
            UNION ALL
            SELECT e.invoice_id, NULL, NULL, sum(CASE WHEN e.kind = 'payment' THEN e.amount_cents ELSE 0 END),
                greatest(sum(CASE WHEN e.kind IN ('payment', 'dispute_won') THEN e.amount_cents
                    WHEN e.kind IN ('refund', 'dispute_opened') THEN -e.amount_cents
                    ELSE 0 END), 0)
            FROM payment_entry e WHERE e.account_id = $1
            GROUP BY e.invoice_id, e.connection_id, e.gateway_charge_id
        ) u
        GROUP BY u.invoice_id
        HAVING CASE WHEN max(u.status) = 'paid' THEN sum(u.paid_cents) < max(u.total_cents)
            ELSE sum(u.held_cents) >= max(u.total_cents) END
        """,
    ),
    Invariant(
        "refunds_and_disputes_are_shown",
        "`refundedAt` is set if refunds cover what was paid; `disputedAt` is set exactly while a dispute is not won",
        """
        SELECT u.invoice_id AS offender
        FROM (
            SELECT v.invoice_id, (v.refunded_at IS NOT NULL)::int AS is_refunded,
                (v.disputed_at IS NOT NULL)::int AS is_disputed, 0 AS paid_cents, 0 AS refunded_cents, 0 AS disputes
            FROM invoice v WHERE v.account_id = $1
            UNION ALL
            SELECT e.invoice_id, 0, 0, CASE WHEN e.kind = 'payment' THEN e.amount_cents ELSE 0 END,
                CASE WHEN e.kind = 'refund' THEN e.amount_cents ELSE 0 END,
                CASE WHEN e.kind = 'dispute_opened' THEN 1 WHEN e.kind = 'dispute_won' THEN -1 ELSE 0 END
            FROM payment_entry e WHERE e.account_id = $1
        ) u
        GROUP BY u.invoice_id
        HAVING (sum(u.refunded_cents) >= sum(u.paid_cents) AND sum(u.paid_cents) > 0 AND sum(u.is_refunded) = 0)
            OR (sum(u.is_refunded) > 0 AND sum(u.refunded_cents) = 0)
            OR (sum(u.is_disputed) > 0) <> (sum(u.disputes) > 0)
            OR sum(u.refunded_cents) > sum(u.paid_cents)
        """,
    ),
    Invariant(
        "refunds_fit_their_payments",
        "the refunds of a charge do not exceed its payments, and manual refunds do not exceed manual payments",
        """
        SELECT e.invoice_id AS offender FROM payment_entry e
        WHERE e.account_id = $1 AND e.kind IN ('payment', 'refund')
        GROUP BY e.invoice_id, e.connection_id, e.gateway_charge_id
        HAVING sum(CASE e.kind WHEN 'refund' THEN e.amount_cents ELSE -e.amount_cents END) > 0
        """,
    ),
    Invariant(
        "entries_are_recorded_once",
        "no two connections, which may belong to one account at the provider, have the same entry of an invoice",
        """
        SELECT e.invoice_id AS offender FROM payment_entry e
        WHERE e.account_id = $1 AND e.source = 'gateway'
        GROUP BY e.invoice_id, e.gateway_charge_id, e.kind, e.reference
        HAVING count(*) > 1
        """,
    ),
    Invariant(
        "finished_refunds_are_recorded",
        "a refund that is done has its entry, which no other refund has, and one that failed has its event",
        """
        SELECT r.refund_id AS offender FROM refund_request r
        WHERE r.account_id = $1 AND r.stage = 'done' AND NOT EXISTS (
            SELECT FROM payment_entry e
            WHERE e.account_id = $1 AND e.payment_entry_id = r.payment_entry_id AND e.kind = 'refund'
                AND e.invoice_id = r.invoice_id AND e.amount_cents = r.amount_cents
                AND e.connection_id IS NOT DISTINCT FROM r.connection_id
                AND e.gateway_charge_id IS NOT DISTINCT FROM r.gateway_charge_id
        )
        UNION
        SELECT r.refund_id FROM (
            SELECT x.refund_id, count(*) OVER (PARTITION BY x.payment_entry_id) AS holders
            FROM refund_request x WHERE x.account_id = $1 AND x.payment_entry_id IS NOT NULL
        ) r WHERE r.holders > 1
        UNION
        SELECT r.refund_id FROM refund_request r
        WHERE r.account_id = $1 AND r.stage = 'failed' AND NOT EXISTS (
            SELECT FROM event n
            WHERE n.account_id = $1 AND n.type = 'invoice.refund_failed'
                AND n.data::jsonb #>> '{refund,id}' = r.refund_id::text
        ) AND r.closed_at > coalesce((
            SELECT x.deleted_until FROM retention x WHERE x.account_id = $1 AND x.kind = 'events'
        ), '-infinity')
        """,
    ),
    Invariant(
        "entries_have_one_event",
        "every refund and every step of a dispute has exactly one event, unless it is as old as a deleted one",
        """
        SELECT u.payment_entry_id AS offender
        FROM (
            SELECT e.payment_entry_id, e.kind, 1 AS entries, 0 AS events, e.recorded_at FROM payment_entry e
            WHERE e.account_id = $1 AND e.kind <> 'payment'
            UNION ALL
            SELECT (n.data::jsonb #>> '{entry,id}')::uuid, CASE WHEN n.type = 'invoice.refunded' THEN 'refund'
                WHEN n.type = 'invoice.disputed' THEN 'dispute_opened'
                ELSE n.data::jsonb #>> '{entry,kind}' END, 0, 1, n.created_at
            FROM event n
            WHERE n.account_id = $1 AND n.type IN ('invoice.refunded', 'invoice.disputed', 'invoice.dispute_closed')
        ) u
        WHERE u.recorded_at > coalesce((
            SELECT r.deleted_until FROM retention r WHERE r.account_id = $1 AND r.kind = 'events'
        ), '-infinity')
        GROUP BY u.payment_entry_id, u.kind
        HAVING sum(u.entries) <> 1 OR sum(u.events) <> 1
        """,
    ),
    Invariant(
        "requests_wait_for_charges",
        "a request that waits for a cancellation waits for the newest charge of an open invoice",
        """
        SELECT u.invoice_id AS offender
        FROM merchant_request u
        JOIN invoice v ON v.invoice_id = u.invoice_id
        JOIN charge c ON c.charge_id = u.charge_id
        WHERE u.account_id = $1 AND v.account_id = $1 AND c.account_id = $1 AND (
            v.status NOT IN ('issued', 'overdue') OR c.gateway_invoice_id IS NULL OR EXISTS (
                SELECT FROM charge n
                WHERE n.account_id = $1 AND n.invoice_id = u.invoice_id AND n.number > c.number
            )
        )
        """,
    ),
    Invariant(
        "entries_match_the_sandbox",
        "an entry of a sandbox charge has the amount and the invoice that the sandbox gateway has",
        """
        SELECT e.payment_entry_id AS offender
        FROM payment_entry e
        JOIN sandbox_charge b ON b.charge_id = e.gateway_charge_id
        LEFT JOIN LATERAL (
            SELECT (x.entry ->> 'amount_cents')::int8 AS amount_cents
            FROM jsonb_array_elements(b.entries) AS x (entry)
            WHERE x.entry ->> 'reference' = e.reference AND x.entry ->> 'kind' = e.kind
        ) s ON true
        WHERE e.account_id = $1 AND b.account_id = $1
            AND (s.amount_cents IS DISTINCT FROM e.amount_cents OR (b.invoice_id <> e.invoice_id AND NOT EXISTS (
                SELECT FROM lost_invoice l JOIN invoice v ON v.subscription_id = l.subscription_id AND v.cycle = l.cycle
                WHERE l.account_id = $1 AND v.account_id = $1 AND v.invoice_id = e.invoice_id
                    AND l.charge_ids @> ARRAY[b.charge_id]
            )))
        """,
    ),
)
