"""Invariants of tenant isolation, idempotency keys and secrets."""

from fatura.store.invariants.invariant import Invariant

TENANT_ISOLATION: tuple[Invariant, ...] = (
    Invariant(
        "same_account_references",
        "every reference of a row leads to a row of the same account",
        """
        SELECT u.offender FROM (
            SELECT c.plan_version_id AS offender FROM plan_version c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan p WHERE p.account_id = $1 AND p.plan_id = c.plan_id)
            UNION
            SELECT c.product_id FROM plan_item c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan_version p WHERE p.account_id = $1 AND p.plan_version_id = c.plan_version_id)
            UNION
            SELECT c.plan_version_id FROM plan_item c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM product p WHERE p.account_id = $1 AND p.product_id = c.product_id)
            UNION
            SELECT c.subscription_id FROM subscription c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan_version p WHERE p.account_id = $1 AND p.plan_version_id = c.plan_version_id)
            UNION
            SELECT c.subscription_id FROM subscription c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM customer p WHERE p.account_id = $1 AND p.customer_id = c.customer_id)
            UNION
            SELECT c.subscription_id FROM subscription c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.customer_id FROM erasure c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM customer p WHERE p.account_id = $1 AND p.customer_id = c.customer_id)
            UNION
            SELECT c.subscription_id FROM subscription_terms c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM subscription p WHERE p.account_id = $1 AND p.subscription_id = c.subscription_id)
            UNION
            SELECT c.subscription_id FROM subscription_terms c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan_version p WHERE p.account_id = $1 AND p.plan_version_id = c.plan_version_id)
            UNION
            SELECT c.propagation_id FROM propagation c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan_version p WHERE p.account_id = $1 AND p.plan_version_id = c.plan_version_id)
            UNION
            SELECT c.propagation_id FROM propagation c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan p WHERE p.account_id = $1 AND p.plan_id = c.plan_id)
            UNION
            SELECT c.propagation_id FROM propagation_skip c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM propagation p WHERE p.account_id = $1 AND p.propagation_id = c.propagation_id)
            UNION
            SELECT c.propagation_id FROM propagation_skip c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM subscription p WHERE p.account_id = $1 AND p.subscription_id = c.subscription_id)
            UNION
            SELECT c.connection_move_id FROM connection_move c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.from_connection_id)
            UNION
            SELECT c.connection_move_id FROM connection_move c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.to_connection_id)
            UNION
            SELECT c.connection_move_id FROM connection_move_skip c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM connection_move p
                WHERE p.account_id = $1 AND p.connection_move_id = c.connection_move_id)
            UNION
            SELECT c.connection_move_id FROM connection_move_skip c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM subscription p WHERE p.account_id = $1 AND p.subscription_id = c.subscription_id)
            UNION
            SELECT c.invoice_id FROM invoice c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan_version p WHERE p.account_id = $1 AND p.plan_version_id = c.plan_version_id)
            UNION
            SELECT c.invoice_id FROM invoice c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM subscription p WHERE p.account_id = $1 AND p.subscription_id = c.subscription_id)
            UNION
            SELECT c.invoice_id FROM invoice c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.item_id FROM invoice_item c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice p WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.item_id FROM invoice_item c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM product p WHERE p.account_id = $1 AND p.product_id = c.product_id)
            UNION
            SELECT c.charge_id FROM charge c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice p WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.charge_id FROM charge c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.charge_id FROM late_charge_check c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM charge p
                WHERE p.account_id = $1 AND p.charge_id = c.charge_id AND p.connection_id = c.connection_id)
            UNION
            SELECT c.charge_id FROM late_charge_check c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.payment_entry_id FROM payment_entry c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice p WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.payment_entry_id FROM payment_entry c
            WHERE c.account_id = $1 AND c.connection_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.payment_entry_id FROM payment_entry c
            WHERE c.account_id = $1 AND c.charge_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM charge p
                WHERE p.account_id = $1 AND p.charge_id = c.charge_id AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.refund_id FROM refund_request c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice p WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.refund_id FROM refund_request c
            WHERE c.account_id = $1 AND c.connection_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.refund_id FROM refund_request c
            WHERE c.account_id = $1 AND c.charge_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM charge p
                WHERE p.account_id = $1 AND p.charge_id = c.charge_id AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.refund_id FROM refund_request c
            WHERE c.account_id = $1 AND c.payment_entry_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM payment_entry p WHERE p.account_id = $1 AND p.payment_entry_id = c.payment_entry_id)
            UNION
            SELECT c.invoice_id FROM price_pull c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice_item p
                WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id AND p.position = c.position)
            UNION
            SELECT c.product_id FROM product_mirror c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM product p WHERE p.account_id = $1 AND p.product_id = c.product_id)
            UNION
            SELECT c.connection_id FROM connection_health c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.connection_id FROM connection_sweep c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.connection_id FROM poll_round c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.connection_id FROM gateway_webhook c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.call_id FROM provider_call c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM charge p WHERE p.account_id = $1 AND p.charge_id = c.charge_id)
            UNION
            SELECT c.connection_id FROM unmatched_charge c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.connection_id FROM product_mirror c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.plan_version_id FROM plan_version c
            WHERE c.account_id = $1 AND c.subscription_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM subscription p WHERE p.account_id = $1 AND p.subscription_id = c.subscription_id)
            UNION
            SELECT c.plan_version_id FROM plan_discount c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan_item p
                WHERE p.account_id = $1 AND p.plan_version_id = c.plan_version_id AND p.position = c.position)
            UNION
            SELECT c.subscription_id FROM subscription c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM plan p WHERE p.account_id = $1 AND p.plan_id = c.plan_id)
            UNION
            SELECT c.subscription_id FROM lost_invoice c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM subscription p WHERE p.account_id = $1 AND p.subscription_id = c.subscription_id)
            UNION
            SELECT c.connection_id FROM lost_invoice c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.invoice_id FROM pricing_attempt c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM price_pull p
                WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id AND p.position = c.position)
            UNION
            SELECT c.invoice_id FROM merchant_request c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice p WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.invoice_id FROM merchant_request c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM charge p
                WHERE p.account_id = $1 AND p.charge_id = c.charge_id AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.account_id FROM delivery c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM event p WHERE p.account_id = $1 AND p.sequence = c.sequence)
            UNION
            SELECT c.account_id FROM delivery_attempt c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM delivery p WHERE p.account_id = $1 AND p.sequence = c.sequence)
            UNION
            SELECT c.connection_id FROM sandbox_charge c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.connection_id FROM sandbox_product c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.connection_id FROM pix_key_charge c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
            UNION
            SELECT c.connection_id FROM pix_key_entry c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM pix_key_charge p
                WHERE p.account_id = $1 AND p.connection_id = c.connection_id AND p.txid = c.txid)
            UNION
            SELECT c.connection_id FROM sandbox_fault c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
        ) u
        """,
    ),
    Invariant(
        "customer_keys_match",
        "the search keys of a customer match the name and the e-mail, if these are ASCII",
        """
        SELECT c.customer_id AS offender FROM customer c
        WHERE c.account_id = $1 AND (
            (octet_length(c.name) = char_length(c.name) AND c.name_key <> lower(c.name COLLATE "C"))
            OR (octet_length(c.email) = char_length(c.email) AND c.email_key <> lower(c.email COLLATE "C"))
        )
        """,
    ),
    Invariant(
        "idempotency_keys_answered_once",
        "an Idempotency-Key has one row in its account, and its request has an answer or has reserved a call",
        """
        SELECT c.account_id AS offender FROM account_counter c
        WHERE c.account_id = $1 AND EXISTS (
            SELECT FROM idempotency_key k WHERE k.account_id = $1 GROUP BY k.key
            HAVING count(*) > 1 OR bool_or(k.answer IS NULL AND k.in_progress_until IS NULL)
        )
        """,
    ),
    Invariant(
        "secrets_have_known_keys",
        "every secret was sealed with a key of the key ring",
        """
        SELECT u.offender FROM (
            SELECT s.integration_secret_id AS offender FROM integration_secret s
            WHERE s.account_id = $1 AND substr(s.sealed, 1, 4) <> ALL ($3::bytea[])
            UNION
            SELECT g.connection_id FROM gateway_connection g
            WHERE g.account_id = $1 AND substr(g.credentials_sealed, 1, 4) <> ALL ($3::bytea[])
            UNION
            SELECT x.customer_id FROM customer x
            WHERE x.account_id = $1 AND substr(x.document_sealed, 1, 4) <> ALL ($3::bytea[])
            UNION
            SELECT c.charge_id FROM charge c
            WHERE c.account_id = $1 AND substr(c.request_sealed, 1, 4) <> ALL ($3::bytea[])
            UNION
            SELECT k.call_id FROM provider_call k
            WHERE k.account_id = $1 AND substr(k.sealed, 1, 4) <> ALL ($3::bytea[])
            UNION
            SELECT i.account_id FROM idempotency_key i
            WHERE i.account_id = $1 AND i.is_sealed AND substr(i.answer, 1, 4) <> ALL ($3::bytea[])
            UNION
            SELECT i.account_id FROM idempotency_key i
            WHERE i.account_id = $1 AND substr(i.body_hash, 1, 4) <> ALL ($3::bytea[])
        ) u
        """,
        needs="key_ids",
    ),
)
