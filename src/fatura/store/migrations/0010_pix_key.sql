-- The charges of connections with a Pix key. No payment provider stores them. Like a provider's data, they are
-- independent of the engine's tables, and have no foreign keys to invoices.

CREATE TABLE pix_key_charge (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    txid text NOT NULL,
    invoice_id uuid NOT NULL,
    attempt integer NOT NULL,
    amount_cents bigint NOT NULL,
    due_date date NOT NULL,
    pix_code text NOT NULL,
    is_canceled boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    CONSTRAINT pix_key_charge_pk PRIMARY KEY (account_id, connection_id, txid),
    CONSTRAINT pix_key_charge_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT pix_key_charge_amount CHECK (amount_cents > 0)
);
CREATE INDEX pix_key_charge_by_time ON pix_key_charge (account_id, connection_id, created_at, txid);
