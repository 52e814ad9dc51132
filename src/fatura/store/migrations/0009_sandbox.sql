-- Test clocks, and the data of the sandbox gateway, which stands for a provider. As at a provider, its tables have no
-- foreign keys to invoices, and an invoice may have two charges.

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
    CONSTRAINT sandbox_fault_call CHECK (
        operation IN ('create_charge', 'get_charge', 'cancel_charge', 'list_charges', 'create_product')
    ),
    CONSTRAINT sandbox_fault_fault CHECK (
        fault IN ('timeout_before', 'timeout_after', 'server_error', 'rate_limited', 'rejected')
    ),
    CONSTRAINT sandbox_fault_times CHECK (times_left >= 0)
);
CREATE INDEX sandbox_fault_waiting ON sandbox_fault (account_id, connection_id, operation) WHERE times_left > 0;
