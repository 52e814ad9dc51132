-- Products, plans and their versions, and the copies of products in the catalogs of gateways.

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
CREATE INDEX product_by_ref ON product (account_id, external_ref) WHERE external_ref IS NOT NULL;

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

-- A version has all terms of a plan and never changes. With a `subscription_id`, it holds the private terms of that
-- subscription, and `version` repeats the number of the plan version that the subscription had before.
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

CREATE TRIGGER plan_version_kept BEFORE UPDATE OR DELETE ON plan_version
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- A transaction that sets `app.replaced_terms` may delete the items of private terms that billed no invoice (D-245).
CREATE FUNCTION refuse_unless_replaced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('app.replaced_terms', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of % is refused: its rows are kept as they are', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = 'row_kept';
END
$$;
CREATE TRIGGER plan_item_kept BEFORE UPDATE OR DELETE ON plan_item
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_replaced();
CREATE TRIGGER plan_discount_kept BEFORE UPDATE OR DELETE ON plan_discount
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_replaced();

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
CREATE INDEX product_mirror_by_time ON product_mirror (next_attempt_at) WHERE next_attempt_at > '-infinity';
