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
        """,
    ),
    Invariant(
        "erased_data_is_gone",
        "the subscriptions and invoices of an erased customer keep no data of it (D-228)",
        """
        SELECT s.subscription_id AS offender
        FROM customer c JOIN subscription s ON s.customer_id = c.customer_id
        WHERE c.account_id = $1 AND s.account_id = $1 AND c.erased_at IS NOT NULL AND (
            s.external_ref <> 'erased-' || s.subscription_id::text OR EXISTS (
                SELECT FROM invoice v
                WHERE v.account_id = $1 AND v.subscription_id = s.subscription_id AND (
                    (v.issue_error_detail <> '[erased]' AND v.issue_error_code <> 'customer_erased') OR EXISTS (
                        SELECT FROM invoice_item i WHERE i.account_id = $1 AND i.invoice_id = v.invoice_id
                            AND i.description <> '[erased]'
                    ) OR EXISTS (
                        SELECT FROM pricing_attempt t WHERE t.account_id = $1 AND t.invoice_id = v.invoice_id
                            AND t.response_body <> '[erased]'
                    ) OR EXISTS (
                        SELECT FROM charge h WHERE h.account_id = $1 AND h.invoice_id = v.invoice_id AND (
                            NOT h.erased OR h.error_detail <> '[erased]' OR num_nonnulls(
                                h.request_sealed, h.pay_url, h.pix_code, h.boleto_line, h.pay_expires_at
                            ) > 0 OR EXISTS (
                                SELECT FROM provider_call k WHERE k.account_id = $1 AND k.charge_id = h.charge_id
                            )
                        )
                    ) OR EXISTS (
                        SELECT FROM payment_entry e WHERE e.account_id = $1 AND e.invoice_id = v.invoice_id
                            AND (e.note <> '[erased]' OR (e.source = 'manual' AND e.reference <> '[erased]'))
                    ) OR EXISTS (
                        SELECT FROM merchant_request m WHERE m.account_id = $1 AND m.invoice_id = v.invoice_id
                            AND (m.note <> '[erased]' OR m.reference <> '[erased]')
                    ) OR EXISTS (
                        SELECT FROM refund_request r WHERE r.account_id = $1 AND r.invoice_id = v.invoice_id
                            AND (NOT r.erased OR r.reason <> '[erased]' OR r.error_detail <> '[erased]')
                    )
                )
            )
        )
        """,
    ),
)
