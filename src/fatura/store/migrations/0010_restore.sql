-- A restore from a backup that is older than the gateways: what waits meanwhile, and what the gateways hold.

-- Real time; set while the account's books are compared with its gateways. Nothing is generated or issued meanwhile.
ALTER TABLE account ADD COLUMN recovering_since timestamptz;

-- Charges that a restore found for the attempt. They are asked after by these ids, and the attempt is never sent again.
ALTER TABLE charge_attempt ADD COLUMN known_charge_ids text[] NOT NULL DEFAULT '{}';

-- Charges of a cycle that the backup has not billed yet. When it is billed, the invoice gets the id that it had.
CREATE TABLE lost_invoice (
    account_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    cycle integer NOT NULL,
    invoice_id uuid NOT NULL,
    attempt integer NOT NULL,
    amount_cents bigint NOT NULL,
    charge_due_date date,
    charge_ids text[] NOT NULL,
    CONSTRAINT lost_invoice_pk PRIMARY KEY (account_id, subscription_id, cycle),
    CONSTRAINT lost_invoice_subscription_fk FOREIGN KEY (account_id, subscription_id)
        REFERENCES subscription (account_id, subscription_id),
    CONSTRAINT lost_invoice_amount CHECK (amount_cents > 0)
);

ALTER TABLE lost_invoice ENABLE ROW LEVEL SECURITY;
ALTER TABLE lost_invoice FORCE ROW LEVEL SECURITY;
CREATE POLICY lost_invoice_of_account ON lost_invoice
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
