-- Accounts, their counters, credentials and gateway connections.
-- In every table account_id leads each key, unique index and foreign key, so no row refers to another account's row.

-- `recovering_since` (real time) is set while a restore compares the account with its gateways; nothing is billed meanwhile.
CREATE TABLE account (
    account_id uuid NOT NULL,
    name text NOT NULL,
    mode text NOT NULL,
    currency text NOT NULL,
    clock_offset interval NOT NULL,
    created_at timestamptz NOT NULL,
    recovering_since timestamptz,
    CONSTRAINT account_pk PRIMARY KEY (account_id),
    CONSTRAINT account_mode CHECK (mode IN ('live', 'sandbox')),
    CONSTRAINT account_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT account_clock CHECK (clock_offset >= interval '0' AND (mode = 'sandbox' OR clock_offset = interval '0'))
);

-- One row per account: the last event number and the total of each list. The last statement before a commit updates
-- the row, so event numbers follow the order of commits without gaps.
CREATE TABLE account_counter (
    account_id uuid NOT NULL,
    last_sequence bigint NOT NULL DEFAULT 0,
    products bigint NOT NULL DEFAULT 0,
    plans bigint NOT NULL DEFAULT 0,
    customers bigint NOT NULL DEFAULT 0,
    subscriptions_active bigint NOT NULL DEFAULT 0,
    subscriptions_canceled bigint NOT NULL DEFAULT 0,
    invoices_draft bigint NOT NULL DEFAULT 0,
    invoices_awaiting_value bigint NOT NULL DEFAULT 0,
    invoices_ready bigint NOT NULL DEFAULT 0,
    invoices_issued bigint NOT NULL DEFAULT 0,
    invoices_paid bigint NOT NULL DEFAULT 0,
    invoices_overdue bigint NOT NULL DEFAULT 0,
    invoices_canceled bigint NOT NULL DEFAULT 0,
    CONSTRAINT account_counter_pk PRIMARY KEY (account_id),
    CONSTRAINT account_counter_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT account_counter_not_negative CHECK (
        least(
            last_sequence, products, plans, customers, subscriptions_active, subscriptions_canceled, invoices_draft,
            invoices_awaiting_value, invoices_ready, invoices_issued, invoices_paid, invoices_overdue,
            invoices_canceled
        ) >= 0
    )
) WITH (fillfactor = 50);

CREATE TABLE api_key (
    account_id uuid NOT NULL,
    api_key_id uuid NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    secret_hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_key_pk PRIMARY KEY (account_id, api_key_id),
    CONSTRAINT api_key_hash_once UNIQUE (account_id, secret_hash),
    CONSTRAINT api_key_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id)
);

CREATE TABLE integration_secret (
    account_id uuid NOT NULL,
    integration_secret_id uuid NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL,
    valid_until timestamptz,
    CONSTRAINT integration_secret_pk PRIMARY KEY (account_id, integration_secret_id),
    CONSTRAINT integration_secret_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id)
);
CREATE UNIQUE INDEX integration_secret_one_current ON integration_secret (account_id) WHERE valid_until IS NULL;

CREATE TABLE idempotency_key (
    account_id uuid NOT NULL,
    key text NOT NULL,
    route text NOT NULL,
    body_hash bytea NOT NULL,
    status smallint,
    answer bytea,
    is_sealed boolean NOT NULL DEFAULT false,
    expires_at timestamptz NOT NULL,
    CONSTRAINT idempotency_key_pk PRIMARY KEY (account_id, key),
    CONSTRAINT idempotency_key_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT idempotency_key_answered CHECK ((status IS NULL) = (answer IS NULL))
);
CREATE INDEX idempotency_key_expiry ON idempotency_key (account_id, expires_at);

CREATE TABLE gateway_connection (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    provider text NOT NULL,
    label text,
    active boolean NOT NULL,
    issues_charges boolean NOT NULL,
    methods text[] NOT NULL,
    max_installments smallint NOT NULL,
    product_catalog boolean NOT NULL,
    settings jsonb NOT NULL,
    credentials_sealed bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT gateway_connection_pk PRIMARY KEY (account_id, connection_id),
    CONSTRAINT gateway_connection_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT gateway_connection_methods CHECK (methods <@ ARRAY['card', 'pix', 'boleto']),
    CONSTRAINT gateway_connection_installments CHECK (max_installments BETWEEN 1 AND 12)
);

-- For triggers on operations that a table never allows, such as DELETE.
CREATE FUNCTION refuse_any_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows are kept as they are', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = 'row_kept';
END
$$;
