"""Invariants of erased customers."""

from fatura.store.invariants.invariant import Invariant

ERASURES: tuple[Invariant, ...] = (
    Invariant(
        "erasures_match_customers",
        "a customer without an e-mail has an erasure, and `erased_at` is set when the erasure is done",
        """
        SELECT c.customer_id AS offender
        FROM customer c LEFT JOIN erasure e ON e.account_id = $1 AND e.customer_id = c.customer_id
        WHERE c.account_id = $1 AND (
            (c.email IS NULL) <> (e.customer_id IS NOT NULL)
            OR (c.erased_at IS NOT NULL) <> (coalesce(e.stage, '') = 'done')
        )
        LIMIT $2
        """,
    ),
    Invariant(
        "erased_data_is_gone",
        "the subscriptions and charges of an erased customer keep no externalRef and no request",
        """
        SELECT s.subscription_id AS offender
        FROM customer c JOIN subscription s ON s.customer_id = c.customer_id
        WHERE c.account_id = $1 AND s.account_id = $1 AND c.erased_at IS NOT NULL AND (
            s.external_ref <> 'erased-' || s.subscription_id::text OR EXISTS (
                SELECT FROM invoice v JOIN charge h ON h.invoice_id = v.invoice_id
                WHERE v.account_id = $1 AND h.account_id = $1 AND v.subscription_id = s.subscription_id
                    AND h.request_sealed IS NOT NULL
            )
        )
        LIMIT $2
        """,
    ),
)
