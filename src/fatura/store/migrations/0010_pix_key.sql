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
CREATE INDEX pix_key_charge_by_txid ON pix_key_charge (account_id, txid);
CREATE INDEX pix_key_charge_by_time ON pix_key_charge (account_id, connection_id, created_at, txid);

-- Payments that the merchant imported from bank statements, and refunds that the merchant makes in the bank's app.
-- `reference` is the bank's id of a payment, and the engine's id of a refund. Some banks write the end-to-end id of a
-- Pix in upper case only, so `reference_key` is the same for both forms (`bank_statement.same_id`). `occurred_on` is the
-- Sao Paulo date.
CREATE TABLE pix_key_entry (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    kind text NOT NULL,
    reference text NOT NULL,
    reference_key text COLLATE "C" NOT NULL GENERATED ALWAYS AS (
        CASE WHEN reference COLLATE "C" ~ '^[Ee][0-9]{20}[0-9A-Za-z]{11}$' THEN upper(reference) ELSE reference END
    ) STORED,
    txid text NOT NULL,
    amount_cents bigint NOT NULL,
    occurred_at timestamptz NOT NULL,
    occurred_on date NOT NULL,
    is_confirmed boolean NOT NULL,
    recorded_at timestamptz NOT NULL,
    CONSTRAINT pix_key_entry_pk PRIMARY KEY (account_id, kind, reference_key),
    CONSTRAINT pix_key_entry_charge_fk FOREIGN KEY (account_id, connection_id, txid)
        REFERENCES pix_key_charge (account_id, connection_id, txid),
    CONSTRAINT pix_key_entry_kind CHECK (kind IN ('payment', 'refund')),
    CONSTRAINT pix_key_entry_amount CHECK (amount_cents > 0)
);
CREATE INDEX pix_key_entry_of_charge ON pix_key_entry (account_id, connection_id, txid, recorded_at, reference);
-- Two payments of the same amount on the same day may be one payment that the bank named differently in two files. Only
-- a person can confirm that they are two payments.
CREATE UNIQUE INDEX pix_key_entry_alike
    ON pix_key_entry (account_id, connection_id, txid, amount_cents, occurred_on)
    WHERE kind = 'payment' AND NOT is_confirmed;
