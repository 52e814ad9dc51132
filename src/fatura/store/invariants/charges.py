"""Invariants of charges: an invoice has at most one charge, and the charge is for the invoice's total."""

from fatura.store.invariants.invariant import Invariant

CHARGES: tuple[Invariant, ...] = (
    Invariant(
        "charge_is_the_confirmed_one",
        "the charge of an invoice is that of its only confirmed attempt, with the same amount",
        """
        SELECT coalesce(v.invoice_id, a.invoice_id) AS offender
        FROM (SELECT x.* FROM invoice x WHERE x.account_id = $1 AND x.gateway_invoice_id IS NOT NULL) v
        FULL JOIN (SELECT y.* FROM charge_attempt y WHERE y.account_id = $1 AND y.state = 'confirmed') a
            ON a.invoice_id = v.invoice_id
        WHERE v.gateway_invoice_id IS DISTINCT FROM a.gateway_invoice_id OR v.total_cents <> a.amount_cents
        LIMIT $2
        """,
    ),
    Invariant(
        "one_charge_per_invoice",
        "an invoice has at most one attempt that may have a charge, and no charge belongs to two invoices",
        """
        SELECT u.offender FROM (
            SELECT a.invoice_id AS offender FROM charge_attempt a
            WHERE a.account_id = $1 AND a.state <> 'failed' GROUP BY a.invoice_id HAVING count(*) > 1
            UNION
            SELECT n.invoice_id FROM (
                SELECT v.invoice_id, count(*) OVER (PARTITION BY v.connection_id, v.gateway_invoice_id) AS holders
                FROM invoice v WHERE v.account_id = $1 AND v.gateway_invoice_id IS NOT NULL
            ) n WHERE n.holders > 1
        ) u
        LIMIT $2
        """,
    ),
    Invariant(
        "restored_charges_are_tracked",
        "a charge found by a restore belongs to its invoice, or the invoice or cycle is still open",
        """
        SELECT u.offender FROM (
            SELECT v.invoice_id AS offender
            FROM charge_attempt a JOIN invoice v ON v.invoice_id = a.invoice_id
            WHERE a.account_id = $1 AND v.account_id = $1 AND a.known_charge_ids <> '{}'
                AND v.gateway_invoice_id IS NULL AND v.status IN ('paid', 'canceled')
            UNION ALL
            SELECT s.subscription_id
            FROM lost_invoice l JOIN subscription s ON s.subscription_id = l.subscription_id
            WHERE l.account_id = $1 AND s.account_id = $1 AND s.status = 'canceled' AND l.cycle > s.cycle_count
        ) u
        LIMIT $2
        """,
    ),
    Invariant(
        "stopped_issuance_has_error",
        "a ready invoice without a next attempt has an issue error",
        """
        SELECT v.invoice_id AS offender FROM invoice v
        WHERE v.account_id = $1 AND v.status = 'ready' AND v.next_attempt_at IS NULL AND v.issue_error_code IS NULL
        LIMIT $2
        """,
    ),
    Invariant(
        "one_sandbox_charge_per_invoice",
        "the sandbox gateway has at most one charge of an invoice that is not canceled, for its total",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v JOIN sandbox_charge b ON b.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND b.account_id = $1 AND b.status <> 'canceled'
        GROUP BY v.invoice_id, v.total_cents
        HAVING count(*) > 1 OR min(b.amount_cents) <> v.total_cents
        LIMIT $2
        """,
    ),
)
