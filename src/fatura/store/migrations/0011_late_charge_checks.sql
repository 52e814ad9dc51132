-- Charges that were believed absent, and sent again, are looked for again: a gateway may have made the first one late.

CREATE TABLE late_charge_check (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    attempt integer NOT NULL,
    checks_made integer NOT NULL DEFAULT 0,
    next_check_at timestamptz,
    CONSTRAINT late_charge_check_pk PRIMARY KEY (account_id, invoice_id, attempt),
    CONSTRAINT late_charge_check_attempt_fk FOREIGN KEY (account_id, invoice_id, attempt)
        REFERENCES charge_attempt (account_id, invoice_id, attempt)
);
CREATE INDEX late_charge_check_due ON late_charge_check (account_id, next_check_at) WHERE next_check_at IS NOT NULL;

ALTER TABLE late_charge_check ENABLE ROW LEVEL SECURITY;
ALTER TABLE late_charge_check FORCE ROW LEVEL SECURITY;
CREATE POLICY late_charge_check_of_account ON late_charge_check
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
CREATE POLICY late_charge_check_discovered ON late_charge_check FOR SELECT USING (current_setting('app.discover', true) = 'on');
