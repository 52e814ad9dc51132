"""Charges: one for an invoice, over its very total."""

from fatura.store.invariants.invariant import Invariant

CHARGES: tuple[Invariant, ...] = (
    Invariant(
        "issued_by_a_confirmed_attempt",
        "an invoice's charge is the one its confirmed attempt got, of the same amount; no other attempt is confirmed",
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
        "an invoice has one attempt at most that a charge may stand behind, and no charge stands on two invoices",
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
        "found_charges_are_awaited",
        "a charge that a restore found is on its invoice, or its invoice or its cycle still waits for it",
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
        "one_sandbox_charge",
        "the sandbox gateway holds at most one charge that is not canceled for an invoice, over its very total",
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
