-- Invoices, their items and charge attempts, the event stream, the test clock and the sandbox gateway's own storage.

-- `next_attempt_at` (the account's clock) is when the state's own work is due: issuing while `ready`, asking the
-- gateway while `issued` or `overdue`. `lease_until` (real time) is held by the worker that does it.
CREATE TABLE invoice (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    cycle integer NOT NULL,
    status text NOT NULL,
    period_start date NOT NULL,
    period_end date NOT NULL,
    due_date date NOT NULL,
    charge_due_date date,
    payment_method text NOT NULL,
    installments smallint,
    total_cents bigint,
    gateway_invoice_id text,
    issued_at timestamptz,
    paid_at timestamptz,
    refunded_at timestamptz,
    disputed_at timestamptz,
    unexpected_payment_at timestamptz,
    created_at timestamptz NOT NULL,
    next_attempt_at timestamptz,
    lease_until timestamptz,
    issue_failures integer NOT NULL DEFAULT 0,
    issue_failing_since timestamptz,
    issue_delay_emitted boolean NOT NULL DEFAULT false,
    CONSTRAINT invoice_pk PRIMARY KEY (account_id, invoice_id),
    CONSTRAINT invoice_one_per_cycle UNIQUE (account_id, subscription_id, cycle),
    CONSTRAINT invoice_subscription_fk FOREIGN KEY (account_id, subscription_id)
        REFERENCES subscription (account_id, subscription_id),
    CONSTRAINT invoice_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT invoice_cycle CHECK (cycle >= 1),
    CONSTRAINT invoice_period CHECK (period_end >= period_start),
    CONSTRAINT invoice_method CHECK (payment_method IN ('card', 'pix', 'boleto')),
    CONSTRAINT invoice_installments CHECK (
        installments IS NULL OR (payment_method = 'card' AND installments BETWEEN 2 AND 12)
    ),
    CONSTRAINT invoice_status CHECK (
        status IN ('draft', 'awaiting_value', 'ready', 'issued', 'paid', 'overdue', 'canceled')
    ),
    CONSTRAINT invoice_total CHECK (
        CASE
            WHEN status IN ('draft', 'awaiting_value') THEN total_cents IS NULL
            WHEN status = 'canceled' THEN true
            WHEN status = 'paid' THEN total_cents >= 0
            ELSE total_cents > 0
        END IS TRUE
    ),
    CONSTRAINT invoice_charge CHECK (
        CASE
            WHEN status IN ('draft', 'awaiting_value', 'ready') THEN gateway_invoice_id IS NULL
            WHEN status IN ('issued', 'overdue') THEN gateway_invoice_id IS NOT NULL
            WHEN status = 'paid' THEN (gateway_invoice_id IS NULL) = (total_cents = 0)
            ELSE true
        END IS TRUE
    ),
    CONSTRAINT invoice_issued_at CHECK (
        (gateway_invoice_id IS NULL) = (issued_at IS NULL) AND (issued_at IS NULL) = (charge_due_date IS NULL)
    ),
    CONSTRAINT invoice_paid_at CHECK ((status = 'paid') = (paid_at IS NOT NULL))
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX invoice_charge_once ON invoice (account_id, connection_id, gateway_invoice_id)
    WHERE gateway_invoice_id IS NOT NULL;
CREATE INDEX invoice_by_status ON invoice (account_id, status, invoice_id);
CREATE INDEX invoice_work ON invoice (account_id, status, next_attempt_at) WHERE next_attempt_at IS NOT NULL;

CREATE TABLE invoice_item (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    position smallint NOT NULL,
    item_id uuid NOT NULL,
    product_id uuid NOT NULL,
    product_name text NOT NULL,
    pricing_source text NOT NULL,
    pricing_status text NOT NULL,
    months smallint NOT NULL,
    monthly_price_cents bigint,
    discount_percent smallint,
    amount_cents bigint,
    description text,
    CONSTRAINT invoice_item_pk PRIMARY KEY (account_id, invoice_id, position),
    CONSTRAINT invoice_item_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT invoice_item_product_fk FOREIGN KEY (account_id, product_id)
        REFERENCES product (account_id, product_id),
    CONSTRAINT invoice_item_source CHECK (pricing_source IN ('table', 'endpoint', 'manual')),
    CONSTRAINT invoice_item_status CHECK (
        CASE pricing_status
            WHEN 'priced' THEN amount_cents >= 0
            WHEN 'pending' THEN amount_cents IS NULL AND pricing_source = 'endpoint'
            WHEN 'skipped' THEN amount_cents IS NULL AND pricing_source = 'endpoint'
            ELSE false
        END IS TRUE
    ),
    CONSTRAINT invoice_item_table CHECK (
        CASE
            WHEN pricing_source = 'table' THEN
                amount_cents = (months * monthly_price_cents * (100 - coalesce(discount_percent, 0)) + 50) / 100
            ELSE monthly_price_cents IS NULL AND discount_percent IS NULL
        END IS TRUE
    )
);

-- One attempt to create a charge, committed before the first byte leaves. At most one attempt of an invoice can
-- have a charge behind it.
CREATE TABLE charge_attempt (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    attempt integer NOT NULL,
    connection_id uuid NOT NULL,
    state text NOT NULL,
    amount_cents bigint NOT NULL,
    charge_due_date date NOT NULL,
    first_sent_at timestamptz NOT NULL,
    sent_at timestamptz NOT NULL,
    empty_lookups integer NOT NULL DEFAULT 0,
    looked_up_at timestamptz,
    gateway_invoice_id text,
    error_code text,
    error_detail text,
    CONSTRAINT charge_attempt_pk PRIMARY KEY (account_id, invoice_id, attempt),
    CONSTRAINT charge_attempt_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT charge_attempt_state CHECK (state IN ('sending', 'absent', 'confirmed', 'failed', 'parked')),
    CONSTRAINT charge_attempt_confirmed CHECK ((state = 'confirmed') = (gateway_invoice_id IS NOT NULL)),
    CONSTRAINT charge_attempt_amount CHECK (amount_cents > 0)
);
CREATE UNIQUE INDEX charge_attempt_one_live ON charge_attempt (account_id, invoice_id) WHERE state <> 'failed';

-- The stream of everything the account was told. `data` is the exact text that replay and push send.
CREATE TABLE event (
    account_id uuid NOT NULL,
    sequence bigint NOT NULL,
    event_id uuid NOT NULL,
    type text NOT NULL,
    created_at timestamptz NOT NULL,
    subscription_id uuid,
    invoice_id uuid,
    data text NOT NULL,
    CONSTRAINT event_pk PRIMARY KEY (account_id, sequence),
    CONSTRAINT event_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id)
);
CREATE INDEX event_by_type ON event (account_id, type, sequence);

CREATE TABLE test_clock (
    account_id uuid NOT NULL,
    status text NOT NULL,
    target_at timestamptz,
    processed jsonb NOT NULL,
    lease_until timestamptz,
    CONSTRAINT test_clock_pk PRIMARY KEY (account_id),
    CONSTRAINT test_clock_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT test_clock_status CHECK (
        (status = 'ready' AND target_at IS NULL) OR (status = 'advancing' AND target_at IS NOT NULL)
    )
);

-- The sandbox gateway's own books: what a provider would keep on its side. No foreign key leads from here to the
-- engine's invoices, and a second charge for one invoice is possible, as it is elsewhere.
CREATE TABLE sandbox_charge (
    account_id uuid NOT NULL,
    charge_id text NOT NULL,
    connection_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    attempt integer NOT NULL,
    amount_cents bigint NOT NULL,
    payment_method text NOT NULL,
    installments smallint,
    due_date date NOT NULL,
    status text NOT NULL,
    paid_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT sandbox_charge_pk PRIMARY KEY (account_id, charge_id),
    CONSTRAINT sandbox_charge_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT sandbox_charge_status CHECK (status IN ('open', 'paid', 'refused', 'canceled', 'refunded'))
);
CREATE INDEX sandbox_charge_reference ON sandbox_charge (account_id, connection_id, invoice_id, attempt);

CREATE TABLE sandbox_product (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    product_id uuid NOT NULL,
    name text NOT NULL,
    description text,
    created_at timestamptz NOT NULL,
    CONSTRAINT sandbox_product_pk PRIMARY KEY (account_id, connection_id, product_id),
    CONSTRAINT sandbox_product_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id)
);

CREATE TABLE sandbox_fault (
    account_id uuid NOT NULL,
    sandbox_fault_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    operation text NOT NULL,
    fault text NOT NULL,
    times_left integer NOT NULL,
    CONSTRAINT sandbox_fault_pk PRIMARY KEY (account_id, sandbox_fault_id),
    CONSTRAINT sandbox_fault_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT sandbox_fault_operation CHECK (
        operation IN ('create_charge', 'get_charge', 'list_charges', 'create_product')
    ),
    CONSTRAINT sandbox_fault_fault CHECK (
        fault IN ('timeout_before', 'timeout_after', 'server_error', 'rate_limited', 'rejected')
    ),
    CONSTRAINT sandbox_fault_times CHECK (times_left >= 0)
);
CREATE INDEX sandbox_fault_waiting ON sandbox_fault (account_id, connection_id, operation) WHERE times_left > 0;
