-- Attempts to create charges, and later checks for charges that appeared late.

-- An attempt is committed before its request is sent. At most one attempt of an invoice can have a charge.
-- `known_charge_ids` are charges that a restore found for the attempt; an attempt with them is never sent again.
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
    known_charge_ids text[] NOT NULL DEFAULT '{}',
    CONSTRAINT charge_attempt_pk PRIMARY KEY (account_id, invoice_id, attempt),
    CONSTRAINT charge_attempt_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT charge_attempt_state CHECK (state IN ('sending', 'absent', 'confirmed', 'failed', 'parked')),
    CONSTRAINT charge_attempt_confirmed CHECK ((state = 'confirmed') = (gateway_invoice_id IS NOT NULL)),
    CONSTRAINT charge_attempt_amount CHECK (amount_cents > 0)
);
CREATE UNIQUE INDEX charge_attempt_one_live ON charge_attempt (account_id, invoice_id) WHERE state <> 'failed';

CREATE FUNCTION refuse_change_to_settled_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state IN ('confirmed', 'failed') OR (NEW.account_id, NEW.invoice_id, NEW.attempt, NEW.connection_id,
        NEW.amount_cents) IS DISTINCT FROM (OLD.account_id, OLD.invoice_id, OLD.attempt, OLD.connection_id,
        OLD.amount_cents)
    THEN
        RAISE EXCEPTION 'a settled charge attempt cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'charge_attempt_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER charge_attempt_frozen BEFORE UPDATE ON charge_attempt
    FOR EACH ROW EXECUTE FUNCTION refuse_change_to_settled_attempt();
CREATE TRIGGER charge_attempt_kept BEFORE DELETE ON charge_attempt
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- The schedule of checks for an attempt whose charge was not found: the gateway may create the charge later.
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
