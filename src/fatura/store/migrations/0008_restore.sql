-- Charges that a restore found at a gateway for cycles that are not billed in the backup. A new invoice gets the lost one's id.

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
