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
            SELECT c.invoice_id FROM charge_attempt c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice p WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id)
            UNION
            SELECT c.invoice_id FROM price_pull c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM invoice_item p
                WHERE p.account_id = $1 AND p.invoice_id = c.invoice_id AND p.position = c.position)
            UNION
            SELECT c.product_id FROM product_mirror c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM product p WHERE p.account_id = $1 AND p.product_id = c.product_id)
            UNION
            SELECT c.connection_id FROM product_mirror c WHERE c.account_id = $1 AND NOT EXISTS (
                SELECT FROM gateway_connection p WHERE p.account_id = $1 AND p.connection_id = c.connection_id)
        ) u
        LIMIT $2
        """,
    ),
    Invariant(
        "customer_keys_match",
        "customers are found by their name and e-mail, where those are ASCII",
        """
        SELECT c.customer_id AS offender FROM customer c
        WHERE c.account_id = $1 AND (
            (octet_length(c.name) = char_length(c.name) AND c.name_key <> lower(c.name COLLATE "C"))
            OR (octet_length(c.email) = char_length(c.email) AND c.email_key <> lower(c.email COLLATE "C"))
        )
        LIMIT $2
        """,
    ),
    Invariant(
        "idempotency_keys_answered_once",
        "an Idempotency-Key has one row in its account, with an answer",
        """
        SELECT c.account_id AS offender FROM account_counter c
        WHERE c.account_id = $1 AND EXISTS (
            SELECT FROM idempotency_key k WHERE k.account_id = $1 GROUP BY k.key
            HAVING count(*) > 1 OR bool_or(k.answer IS NULL)
        )
        LIMIT $2
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
        ) u
        LIMIT $2
        """,
        needs="key_ids",
    ),
)
