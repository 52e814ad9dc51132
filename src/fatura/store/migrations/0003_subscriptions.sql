-- Customers and their subscriptions.

-- Searches compare `name_key`, `email_key` (`fatura.domain.customer_search`) and `document_hash`: under Row Level Security,
-- an index serves only leakproof functions, and `lower` is not. The hash is an HMAC with the key that seals the document.
CREATE TABLE customer (
    account_id uuid NOT NULL,
    customer_id uuid NOT NULL,
    external_ref text NOT NULL,
    name text NOT NULL,
    email text NOT NULL,
    name_key text COLLATE "C" NOT NULL,
    email_key text COLLATE "C" NOT NULL,
    document_sealed bytea,
    document_hash bytea,
    created_at timestamptz NOT NULL,
    CONSTRAINT customer_pk PRIMARY KEY (account_id, customer_id),
    CONSTRAINT customer_ref_once UNIQUE (account_id, external_ref),
    CONSTRAINT customer_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT customer_document CHECK (
        CASE
            WHEN document_sealed IS NULL THEN document_hash IS NULL
            ELSE substr(document_hash, 1, 4) = substr(document_sealed, 1, 4)
        END IS TRUE
    )
);
CREATE INDEX customer_by_name ON customer (account_id, name_key);
CREATE INDEX customer_by_email ON customer (account_id, email_key);
CREATE INDEX customer_by_document ON customer (account_id, document_hash) WHERE document_hash IS NOT NULL;

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
CREATE INDEX subscription_of_plan ON subscription (account_id, plan_id, subscription_id);
CREATE INDEX subscription_by_ref ON subscription (account_id, external_ref)
    WHERE external_ref IS NOT NULL;

-- Private terms refer to their subscription.
ALTER TABLE plan_version ADD CONSTRAINT plan_version_subscription_fk FOREIGN KEY (account_id, subscription_id)
    REFERENCES subscription (account_id, subscription_id);
