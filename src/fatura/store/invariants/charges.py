"""Invariants of charges: for example, an invoice has at most one live charge (`domain.charge.StageRule.is_live`)."""

from fatura.store.invariants.invariant import Invariant

CHARGES: tuple[Invariant, ...] = (
    Invariant(
        "charge_is_the_confirmed_one",
        "an invoice shows its newest confirmed charge, or any if it is paid; a charge is for the total; after a "
        "payment, it may be for less or, if a restore found it, for more",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v
        LEFT JOIN (
            SELECT DISTINCT ON (x.invoice_id) x.invoice_id, x.gateway_invoice_id, x.confirmed_at
            FROM charge x WHERE x.account_id = $1 AND x.gateway_invoice_id IS NOT NULL
            ORDER BY x.invoice_id, x.number DESC
        ) c ON c.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND v.status <> 'paid'
            AND (v.gateway_invoice_id, v.issued_at) IS DISTINCT FROM (c.gateway_invoice_id, c.confirmed_at)
        UNION
        SELECT v.invoice_id FROM invoice v
        LEFT JOIN charge c ON c.account_id = $1 AND c.invoice_id = v.invoice_id
            AND c.gateway_invoice_id = v.gateway_invoice_id AND c.confirmed_at = v.issued_at
        WHERE v.account_id = $1 AND v.status = 'paid' AND v.gateway_invoice_id IS NOT NULL AND c.charge_id IS NULL
        UNION
        SELECT v.invoice_id FROM charge c JOIN invoice v ON v.invoice_id = c.invoice_id
        WHERE c.account_id = $1 AND v.account_id = $1 AND c.gateway_invoice_id IS NOT NULL
            AND c.amount_cents <> v.total_cents
            AND ((c.amount_cents > v.total_cents AND c.known_charge_ids = '{}') OR NOT EXISTS (
                SELECT FROM payment_entry e WHERE e.account_id = $1 AND e.invoice_id = v.invoice_id
            ))
        """,
    ),
    Invariant(
        "one_charge_per_invoice",
        "an invoice has at most one live charge, and no charge belongs to two invoices",
        """
        SELECT u.offender FROM (
            SELECT c.invoice_id AS offender FROM charge c
            WHERE c.account_id = $1 AND c.stage IN ('sending', 'unknown', 'absent', 'parked', 'open', 'refused')
            GROUP BY c.invoice_id HAVING count(*) > 1
            UNION
            SELECT n.invoice_id FROM (
                SELECT v.invoice_id, count(*) OVER (PARTITION BY v.connection_id, v.gateway_invoice_id) AS holders
                FROM invoice v WHERE v.account_id = $1 AND v.gateway_invoice_id IS NOT NULL
                UNION ALL
                SELECT c.invoice_id, count(*) OVER (PARTITION BY c.connection_id, c.gateway_invoice_id)
                FROM charge c WHERE c.account_id = $1 AND c.gateway_invoice_id IS NOT NULL
            ) n WHERE n.holders > 1
        ) u
        """,
    ),
    Invariant(
        "charges_match_invoices",
        "a payable charge has an issued or overdue invoice, and a charge that can still be sent has a ready one",
        """
        SELECT c.charge_id AS offender
        FROM charge c JOIN invoice v ON v.invoice_id = c.invoice_id
        WHERE c.account_id = $1 AND v.account_id = $1 AND (
            (v.status = 'canceled' AND c.stage IN ('planned', 'sending', 'unknown', 'absent', 'open', 'refused'))
            OR (v.status = 'ready' AND c.stage IN ('open', 'refused'))
            -- a reissue plans the next charge of an invoice whose charge was paid with less than the total
            OR (v.status = 'ready' AND c.stage = 'paid' AND NOT EXISTS (
                SELECT FROM charge n
                WHERE n.account_id = $1 AND n.invoice_id = c.invoice_id AND n.number > c.number
            ))
            OR (v.status IN ('issued', 'overdue') AND c.stage IN ('planned', 'sending', 'unknown', 'absent', 'parked'))
        )
        """,
    ),
    Invariant(
        "restored_charges_are_tracked",
        "a charge found after a restore is adopted by its invoice, or its invoice or its cycle is still open",
        """
        SELECT u.offender FROM (
            SELECT v.invoice_id AS offender
            FROM charge c JOIN invoice v ON v.invoice_id = c.invoice_id
            WHERE c.account_id = $1 AND v.account_id = $1 AND c.known_charge_ids <> '{}'
                AND v.gateway_invoice_id IS NULL AND v.status IN ('paid', 'canceled')
            UNION ALL
            SELECT s.subscription_id
            FROM lost_invoice l JOIN subscription s ON s.subscription_id = l.subscription_id
            WHERE l.account_id = $1 AND s.account_id = $1 AND s.status = 'canceled' AND l.cycle > s.cycle_count
        ) u
        """,
    ),
    Invariant(
        "stopped_issuance_has_error",
        "a ready invoice without a next attempt has an issue error",
        """
        SELECT v.invoice_id AS offender FROM invoice v
        WHERE v.account_id = $1 AND v.status = 'ready' AND v.next_attempt_at IS NULL AND v.issue_error_code IS NULL
        """,
    ),
    Invariant(
        "past_due_charges_were_asked_after",
        "the gateway was asked about each open charge within a day after the charge's last day of payment",
        """
        SELECT n.offender FROM (
            SELECT c.invoice_id AS offender, c.asked_at,
                (c.due_date + CASE c.payment_method WHEN 'boleto' THEN 10 ELSE 1 END)::timestamp
                    AT TIME ZONE 'America/Sao_Paulo' AS past_due_from
            FROM charge c JOIN invoice v ON v.invoice_id = c.invoice_id
            WHERE c.account_id = $1 AND v.account_id = $1 AND c.stage = 'open' AND v.status = 'issued'
        ) n JOIN account a ON a.account_id = $1
        WHERE n.asked_at < n.past_due_from
            AND greatest(n.past_due_from, a.restored_at) < $3::timestamptz + a.clock_offset - interval '1 day'
            AND a.recovering_since IS NULL
            AND NOT EXISTS (SELECT FROM test_clock t WHERE t.account_id = $1 AND t.status = 'advancing')
        """,
        needs="real_now",
    ),
    Invariant(
        "account_has_a_gate",
        "the account has the row of `account_gate` without which nothing is billed",
        """
        SELECT a.account_id AS offender FROM account a
        WHERE a.account_id = $1 AND NOT EXISTS (SELECT FROM account_gate g WHERE g.account_id = $1)
        """,
    ),
    Invariant(
        "connections_have_health",
        "every gateway connection has a row in connection_health",
        """
        SELECT g.connection_id AS offender FROM gateway_connection g
        WHERE g.account_id = $1 AND NOT EXISTS (
            SELECT FROM connection_health h WHERE h.account_id = $1 AND h.connection_id = g.connection_id)
        """,
    ),
    Invariant(
        "connections_are_swept",
        "every gateway connection has a row in connection_sweep",
        """
        SELECT g.connection_id AS offender FROM gateway_connection g
        WHERE g.account_id = $1 AND NOT EXISTS (
            SELECT FROM connection_sweep s WHERE s.account_id = $1 AND s.connection_id = g.connection_id)
        """,
    ),
    Invariant(
        "one_sandbox_charge_per_invoice",
        "an invoice has at most one uncanceled sandbox charge, for the total or, after part payments, for less; "
        "one that a restore found may be for more",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v JOIN sandbox_charge b ON b.invoice_id = v.invoice_id
        LEFT JOIN charge c ON c.account_id = $1 AND c.invoice_id = v.invoice_id
            AND c.gateway_invoice_id = b.charge_id AND c.known_charge_ids <> '{}'
        WHERE v.account_id = $1 AND b.account_id = $1 AND b.status <> 'canceled' AND NOT b.is_double
        GROUP BY v.invoice_id, v.total_cents
        HAVING count(*) > 1 OR max(b.amount_cents) FILTER (WHERE c.charge_id IS NULL) > v.total_cents OR (
            min(b.amount_cents) < v.total_cents AND NOT EXISTS (
                SELECT FROM payment_entry e WHERE e.account_id = $1 AND e.invoice_id = v.invoice_id
            )
        )
        """,
    ),
)
