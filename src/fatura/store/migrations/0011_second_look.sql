-- Charges that were believed absent, and sent again, are looked for again: a gateway may have made the first one late.

CREATE TABLE second_look (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    attempt integer NOT NULL,
    looks integer NOT NULL DEFAULT 0,
    next_look_at timestamptz,
    CONSTRAINT second_look_pk PRIMARY KEY (account_id, invoice_id, attempt),
    CONSTRAINT second_look_attempt_fk FOREIGN KEY (account_id, invoice_id, attempt)
        REFERENCES charge_attempt (account_id, invoice_id, attempt)
);
CREATE INDEX second_look_due ON second_look (account_id, next_look_at) WHERE next_look_at IS NOT NULL;

ALTER TABLE second_look ENABLE ROW LEVEL SECURITY;
ALTER TABLE second_look FORCE ROW LEVEL SECURITY;
CREATE POLICY second_look_of_account ON second_look
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
CREATE POLICY second_look_discovered ON second_look FOR SELECT USING (current_setting('app.discover', true) = 'on');
