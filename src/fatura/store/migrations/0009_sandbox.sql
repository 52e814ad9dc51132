-- Test clocks, and the data of the sandbox gateway, which imitates a payment provider. The data of real providers is
-- independent of Fatura's. So the sandbox tables have no foreign keys to invoices, and may hold two charges for one
-- invoice.

CREATE TABLE test_clock (
    account_id uuid NOT NULL,
    status text NOT NULL,
    target_at timestamptz,
    processed jsonb NOT NULL,
    lease_until timestamptz,
    leased_by uuid,
    CONSTRAINT test_clock_pk PRIMARY KEY (account_id),
    CONSTRAINT test_clock_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT test_clock_status CHECK (
        (status = 'ready' AND target_at IS NULL) OR (status = 'advancing' AND target_at IS NOT NULL)
    )
);
CREATE INDEX test_clock_advancing ON test_clock (account_id) WHERE status = 'advancing';

-- `entries` are the payments, refunds and disputes of the charge. `is_double` is true for a second charge made by hand.
CREATE TABLE sandbox_charge (
    account_id uuid NOT NULL,
    charge_id text NOT NULL,
    connection_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    attempt integer NOT NULL,
    amount_cents bigint NOT NULL,
    currency text NOT NULL,
    payment_method text NOT NULL,
    installments smallint,
    due_date date NOT NULL,
    status text NOT NULL,
    entries jsonb NOT NULL DEFAULT '[]',
    is_double boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    CONSTRAINT sandbox_charge_pk PRIMARY KEY (account_id, charge_id),
    CONSTRAINT sandbox_charge_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT sandbox_charge_status CHECK (status IN ('open', 'paid', 'refused', 'canceled', 'refunded'))
);
CREATE INDEX sandbox_charge_reference ON sandbox_charge (account_id, connection_id, invoice_id, attempt);
CREATE INDEX sandbox_charge_by_time ON sandbox_charge (account_id, connection_id, created_at, charge_id);

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

-- A fault ends after `times_left` calls, or at `active_until` (real time).
CREATE TABLE sandbox_fault (
    account_id uuid NOT NULL,
    sandbox_fault_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    operation text NOT NULL,
    fault text NOT NULL,
    times_left integer,
    active_until timestamptz,
    CONSTRAINT sandbox_fault_pk PRIMARY KEY (account_id, sandbox_fault_id),
    CONSTRAINT sandbox_fault_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT sandbox_fault_call CHECK (
        operation IN (
            'create_charge', 'get_charge', 'cancel_charge', 'refund_charge', 'list_charges', 'create_product', 'all'
        )
    ),
    CONSTRAINT sandbox_fault_fault CHECK (
        fault IN (
            'timeout_before', 'timeout_after', 'server_error', 'rate_limited', 'rejected', 'hang', 'unknown',
            'unauthorized'
        )
    ),
    CONSTRAINT sandbox_fault_times CHECK (times_left >= 0),
    CONSTRAINT sandbox_fault_length CHECK ((times_left IS NULL) <> (active_until IS NULL))
);
CREATE INDEX sandbox_fault_waiting ON sandbox_fault (account_id, connection_id, sandbox_fault_id)
    WHERE times_left > 0 OR active_until IS NOT NULL;
