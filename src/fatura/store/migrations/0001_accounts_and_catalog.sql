-- Accounts, their credentials, the catalog, plans, customers, connections and subscriptions.
-- Every key, unique index and foreign key leads with account_id: another account's row cannot be referred to.

CREATE TABLE account (
    account_id uuid NOT NULL,
    name text NOT NULL,
    mode text NOT NULL,
    currency text NOT NULL,
    clock_offset interval NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT account_pk PRIMARY KEY (account_id),
    CONSTRAINT account_mode CHECK (mode IN ('live', 'sandbox')),
    CONSTRAINT account_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT account_clock CHECK (clock_offset >= interval '0' AND (mode = 'sandbox' OR clock_offset = interval '0'))
);

-- One row an account: the last event number, and how many rows each list has. The row is updated last before a
-- commit, so numbers are given in the order of commits and without gaps, and a list's total costs one row.
CREATE TABLE account_counter (
    account_id uuid NOT NULL,
    last_sequence bigint NOT NULL DEFAULT 0,
    products bigint NOT NULL DEFAULT 0,
    plans bigint NOT NULL DEFAULT 0,
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
            last_sequence, products, plans, subscriptions_active, subscriptions_canceled, invoices_draft,
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

CREATE TABLE product (
    account_id uuid NOT NULL,
    product_id uuid NOT NULL,
    name text NOT NULL,
    description text,
    external_ref text,
    pricing_mode text NOT NULL,
    monthly_price_cents bigint,
    endpoint_url text,
    cap_cents bigint,
    archived_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT product_pk PRIMARY KEY (account_id, product_id),
    CONSTRAINT product_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT product_pricing CHECK (
        CASE pricing_mode
            WHEN 'fixed' THEN
                monthly_price_cents BETWEEN 0 AND 999999999999 AND endpoint_url IS NULL AND cap_cents IS NULL
            WHEN 'endpoint' THEN
                monthly_price_cents IS NULL AND endpoint_url IS NOT NULL AND cap_cents BETWEEN 1 AND 999999999999
            ELSE false
        END IS TRUE
    )
);

CREATE TABLE plan (
    account_id uuid NOT NULL,
    plan_id uuid NOT NULL,
    current_version integer NOT NULL,
    archived_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT plan_pk PRIMARY KEY (account_id, plan_id),
    CONSTRAINT plan_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT plan_version_counts CHECK (current_version >= 1)
);

-- A version is complete and never changes. With a subscription_id it holds that subscription's private terms, and
-- `version` is the number it enrolled with.
CREATE TABLE plan_version (
    account_id uuid NOT NULL,
    plan_version_id uuid NOT NULL,
    plan_id uuid NOT NULL,
    version integer NOT NULL,
    subscription_id uuid,
    name text NOT NULL,
    period_months smallint NOT NULL,
    default_payment_method text NOT NULL,
    max_installments smallint NOT NULL,
    commitment_cycles integer,
    created_at timestamptz NOT NULL,
    CONSTRAINT plan_version_pk PRIMARY KEY (account_id, plan_version_id),
    CONSTRAINT plan_version_plan_fk FOREIGN KEY (account_id, plan_id) REFERENCES plan (account_id, plan_id),
    CONSTRAINT plan_version_period CHECK (period_months IN (1, 3, 6, 12)),
    CONSTRAINT plan_version_method CHECK (default_payment_method IN ('card', 'pix', 'boleto')),
    CONSTRAINT plan_version_installments CHECK (
        max_installments BETWEEN 1 AND 12 AND (default_payment_method = 'card' OR max_installments = 1)
    ),
    CONSTRAINT plan_version_commitment CHECK (commitment_cycles >= 1)
);
CREATE UNIQUE INDEX plan_version_number_once ON plan_version (account_id, plan_id, version)
    WHERE subscription_id IS NULL;

CREATE TABLE plan_item (
    account_id uuid NOT NULL,
    plan_version_id uuid NOT NULL,
    position smallint NOT NULL,
    product_id uuid NOT NULL,
    CONSTRAINT plan_item_pk PRIMARY KEY (account_id, plan_version_id, position),
    CONSTRAINT plan_item_version_fk FOREIGN KEY (account_id, plan_version_id)
        REFERENCES plan_version (account_id, plan_version_id),
    CONSTRAINT plan_item_product_fk FOREIGN KEY (account_id, product_id) REFERENCES product (account_id, product_id),
    CONSTRAINT plan_item_position CHECK (position BETWEEN 0 AND 19)
);

CREATE TABLE plan_discount (
    account_id uuid NOT NULL,
    plan_version_id uuid NOT NULL,
    position smallint NOT NULL,
    priority smallint NOT NULL,
    percent smallint NOT NULL,
    from_cycle integer NOT NULL,
    to_cycle integer,
    CONSTRAINT plan_discount_pk PRIMARY KEY (account_id, plan_version_id, position, priority),
    CONSTRAINT plan_discount_item_fk FOREIGN KEY (account_id, plan_version_id, position)
        REFERENCES plan_item (account_id, plan_version_id, position),
    CONSTRAINT plan_discount_priority CHECK (priority BETWEEN 0 AND 19),
    CONSTRAINT plan_discount_percent CHECK (percent BETWEEN 1 AND 100),
    CONSTRAINT plan_discount_cycles CHECK (from_cycle >= 1 AND to_cycle >= from_cycle)
);

CREATE TABLE customer (
    account_id uuid NOT NULL,
    customer_id uuid NOT NULL,
    external_ref text NOT NULL,
    name text NOT NULL,
    email text NOT NULL,
    document_sealed bytea,
    created_at timestamptz NOT NULL,
    CONSTRAINT customer_pk PRIMARY KEY (account_id, customer_id),
    CONSTRAINT customer_ref_once UNIQUE (account_id, external_ref),
    CONSTRAINT customer_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id)
);

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

CREATE TABLE subscription (
    account_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    external_ref text,
    plan_id uuid NOT NULL,
    plan_version_id uuid NOT NULL,
    plan_version integer NOT NULL,
    customized boolean NOT NULL,
    customer_id uuid NOT NULL,
    status text NOT NULL,
    charge_day smallint NOT NULL,
    payment_method text NOT NULL,
    payment_method_source text NOT NULL,
    connection_id uuid NOT NULL,
    cycle_count integer NOT NULL,
    commitment_cycles integer,
    next_period_start date NOT NULL,
    next_due_date date NOT NULL,
    generate_at timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    canceled_at timestamptz,
    CONSTRAINT subscription_pk PRIMARY KEY (account_id, subscription_id),
    CONSTRAINT subscription_plan_fk FOREIGN KEY (account_id, plan_id) REFERENCES plan (account_id, plan_id),
    CONSTRAINT subscription_version_fk FOREIGN KEY (account_id, plan_version_id)
        REFERENCES plan_version (account_id, plan_version_id),
    CONSTRAINT subscription_customer_fk FOREIGN KEY (account_id, customer_id)
        REFERENCES customer (account_id, customer_id),
    CONSTRAINT subscription_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT subscription_status CHECK (
        (status = 'active' AND canceled_at IS NULL) OR (status = 'canceled' AND canceled_at IS NOT NULL)
    ),
    CONSTRAINT subscription_charge_day CHECK (charge_day BETWEEN 1 AND 28),
    CONSTRAINT subscription_method CHECK (payment_method IN ('card', 'pix', 'boleto')),
    CONSTRAINT subscription_method_source CHECK (payment_method_source IN ('plan_default', 'override')),
    CONSTRAINT subscription_cycles CHECK (cycle_count >= 0),
    CONSTRAINT subscription_commitment CHECK (commitment_cycles >= 1)
) WITH (fillfactor = 85);
CREATE INDEX subscription_due ON subscription (account_id, generate_at) WHERE status = 'active';
CREATE INDEX subscription_of_customer ON subscription (account_id, customer_id);

-- Private terms name their subscription; the key closes the circle once both tables stand.
ALTER TABLE plan_version ADD CONSTRAINT plan_version_subscription_fk FOREIGN KEY (account_id, subscription_id)
    REFERENCES subscription (account_id, subscription_id);

CREATE TABLE product_mirror (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    product_id uuid NOT NULL,
    next_attempt_at timestamptz,
    lease_until timestamptz,
    failures integer NOT NULL,
    last_error text,
    gateway_product_id text,
    mirrored_at timestamptz,
    CONSTRAINT product_mirror_pk PRIMARY KEY (account_id, connection_id, product_id),
    CONSTRAINT product_mirror_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT product_mirror_product_fk FOREIGN KEY (account_id, product_id)
        REFERENCES product (account_id, product_id),
    CONSTRAINT product_mirror_done CHECK ((gateway_product_id IS NULL) = (mirrored_at IS NULL))
);
CREATE INDEX product_mirror_due ON product_mirror (account_id, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
