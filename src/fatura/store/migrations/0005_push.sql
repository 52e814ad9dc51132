-- Push: the account's webhook, the events it is being given, and the log of every attempt.

-- Where an account wants its events. Those up to `fanned_out_to` have been looked at; `at_once` are sent beside each
-- other. `next_attempt_at` (the account's clock) is set while the endpoint is down or asked for patience; `lease_until`
-- (real time) is held by the worker `leased_by`, the only one that sends.
CREATE TABLE webhook (
    account_id uuid NOT NULL,
    url text NOT NULL,
    created_at timestamptz NOT NULL,
    disabled_at timestamptz,
    fanned_out_to bigint NOT NULL,
    at_once smallint NOT NULL DEFAULT 1,
    failures integer NOT NULL DEFAULT 0,
    failing_since timestamptz,
    last_delivered_at timestamptz,
    next_attempt_at timestamptz,
    leased_by uuid,
    lease_until timestamptz,
    CONSTRAINT webhook_pk PRIMARY KEY (account_id),
    CONSTRAINT webhook_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT webhook_at_once CHECK (at_once BETWEEN 1 AND 64),
    CONSTRAINT webhook_failures CHECK ((failures > 0) = (failing_since IS NOT NULL) AND failures >= 0)
) WITH (fillfactor = 50);

-- An event that was taken up. While it is open `next_attempt_at` says when it is due; then it is delivered or given
-- up. Open ones with the same `ordered_by`, their invoice, are sent one after the other; those without are free.
CREATE TABLE delivery (
    account_id uuid NOT NULL,
    sequence bigint NOT NULL,
    ordered_by uuid,
    attempts integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    first_failed_at timestamptz,
    failed_at timestamptz,
    hastened boolean NOT NULL DEFAULT false,
    next_attempt_at timestamptz,
    delivered_at timestamptz,
    given_up_at timestamptz,
    CONSTRAINT delivery_pk PRIMARY KEY (account_id, sequence),
    CONSTRAINT delivery_event_fk FOREIGN KEY (account_id, sequence) REFERENCES event (account_id, sequence),
    CONSTRAINT delivery_state CHECK (num_nonnulls(next_attempt_at, delivered_at, given_up_at) = 1),
    CONSTRAINT delivery_attempts CHECK (attempts >= failures AND failures >= 0)
) WITH (fillfactor = 70);
-- The open ones are few, however many were delivered: every look for work reads them only.
CREATE INDEX delivery_open ON delivery (account_id, sequence, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX delivery_order ON delivery (account_id, ordered_by, sequence) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX delivery_given_up ON delivery (account_id, given_up_at) WHERE given_up_at IS NOT NULL;

CREATE TABLE delivery_attempt (
    account_id uuid NOT NULL,
    sequence bigint NOT NULL,
    attempt integer NOT NULL,
    url text NOT NULL,
    outcome text NOT NULL,
    response_status integer,
    latency_ms integer NOT NULL,
    error text,
    response_body text,
    created_at timestamptz NOT NULL,
    CONSTRAINT delivery_attempt_pk PRIMARY KEY (account_id, sequence, attempt),
    CONSTRAINT delivery_attempt_delivery_fk FOREIGN KEY (account_id, sequence)
        REFERENCES delivery (account_id, sequence),
    CONSTRAINT delivery_attempt_outcome CHECK (outcome IN ('delivered', 'timeout', 'http_error'))
);
CREATE TRIGGER delivery_kept BEFORE DELETE ON delivery FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER delivery_attempt_kept BEFORE UPDATE OR DELETE ON delivery_attempt
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

ALTER TABLE webhook ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook FORCE ROW LEVEL SECURITY;
CREATE POLICY webhook_of_account ON webhook
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE delivery ENABLE ROW LEVEL SECURITY;
ALTER TABLE delivery FORCE ROW LEVEL SECURITY;
CREATE POLICY delivery_of_account ON delivery
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE delivery_attempt ENABLE ROW LEVEL SECURITY;
ALTER TABLE delivery_attempt FORCE ROW LEVEL SECURITY;
CREATE POLICY delivery_attempt_of_account ON delivery_attempt
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
CREATE POLICY webhook_discovered ON webhook FOR SELECT USING (current_setting('app.discover', true) = 'on');
CREATE POLICY delivery_discovered ON delivery FOR SELECT USING (current_setting('app.discover', true) = 'on');
CREATE POLICY account_counter_discovered ON account_counter FOR SELECT
    USING (current_setting('app.discover', true) = 'on');
