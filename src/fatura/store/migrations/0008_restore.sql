-- Charges that `fatura restored` found at a gateway for cycles that have no invoice in the backup. When such a cycle is
-- billed again, its new invoice gets the id and the connection of the lost invoice.

CREATE TABLE lost_invoice (
    account_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    cycle integer NOT NULL,
    invoice_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    attempt integer NOT NULL,
    amount_cents bigint NOT NULL,
    charge_due_date date,
    charge_ids text[] NOT NULL,
    CONSTRAINT lost_invoice_pk PRIMARY KEY (account_id, subscription_id, cycle),
    CONSTRAINT lost_invoice_subscription_fk FOREIGN KEY (account_id, subscription_id)
        REFERENCES subscription (account_id, subscription_id),
    CONSTRAINT lost_invoice_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT lost_invoice_amount CHECK (amount_cents > 0)
);
