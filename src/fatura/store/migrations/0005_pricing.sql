-- Prices asked from merchants: the schedule of each variable item, and a log of every call.

-- One row per variable item, inserted with the item. `next_attempt_at` is when the next price call is scheduled, and
-- `warn_at` is when to report a failing endpoint. Both are on the account's clock, and null if nothing is scheduled.
-- `lease_until` is real time. `closed_at` (real time) is when the invoice was paid or canceled. `calls_deleted` is true
-- after the log of the calls was deleted, because it was old.
CREATE TABLE price_pull (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    position smallint NOT NULL,
    next_attempt_at timestamptz,
    warn_at timestamptz,
    lease_until timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    failures smallint NOT NULL DEFAULT 0,
    first_attempt_at timestamptz,
    first_failed_at timestamptz,
    closed_at timestamptz,
    calls_deleted boolean NOT NULL DEFAULT false,
    CONSTRAINT price_pull_pk PRIMARY KEY (account_id, invoice_id, position),
    CONSTRAINT price_pull_item_fk FOREIGN KEY (account_id, invoice_id, position)
        REFERENCES invoice_item (account_id, invoice_id, position),
    CONSTRAINT price_pull_counts CHECK (failures BETWEEN 0 AND 12 AND attempts >= failures),
    CONSTRAINT price_pull_deleted CHECK (NOT calls_deleted OR closed_at IS NOT NULL)
);
CREATE INDEX price_pull_due ON price_pull (account_id, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX price_pull_warning ON price_pull (account_id, warn_at) WHERE warn_at IS NOT NULL;
CREATE INDEX price_pull_old ON price_pull (account_id, closed_at) WHERE closed_at IS NOT NULL AND NOT calls_deleted;
CREATE INDEX price_pull_by_time ON price_pull (next_attempt_at) WHERE next_attempt_at > '-infinity';
CREATE INDEX price_pull_warning_by_time ON price_pull (warn_at) WHERE warn_at > '-infinity';

-- An attempt is committed before its price call is made. Its outcome is set once: from the answer or, if no answer is
-- recorded before `open_until` (real time), to `timeout`.
CREATE TABLE pricing_attempt (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    position smallint NOT NULL,
    attempt integer NOT NULL,
    by_hand boolean NOT NULL,
    url text NOT NULL,
    cap_cents bigint NOT NULL,
    request_body text NOT NULL,
    created_at timestamptz NOT NULL,
    open_until timestamptz NOT NULL,
    outcome text,
    response_status smallint,
    latency_ms integer,
    response_body text,
    CONSTRAINT pricing_attempt_pk PRIMARY KEY (account_id, invoice_id, position, attempt),
    CONSTRAINT pricing_attempt_pull_fk FOREIGN KEY (account_id, invoice_id, position)
        REFERENCES price_pull (account_id, invoice_id, position),
    CONSTRAINT pricing_attempt_number CHECK (attempt >= 1),
    CONSTRAINT pricing_attempt_outcome CHECK (
        outcome IN ('ok', 'skip', 'timeout', 'http_error', 'invalid_response', 'over_cap')
    ),
    CONSTRAINT pricing_attempt_open CHECK (
        outcome IS NOT NULL OR (response_status IS NULL AND latency_ms IS NULL AND response_body IS NULL)
    )
);
CREATE INDEX pricing_attempt_unsettled ON pricing_attempt (account_id, open_until) WHERE outcome IS NULL;
CREATE INDEX pricing_attempt_by_time ON pricing_attempt (open_until)
    WHERE outcome IS NULL AND open_until > '-infinity';
CREATE UNIQUE INDEX pricing_attempt_one_scheduled ON pricing_attempt (account_id, invoice_id, position)
    WHERE outcome IS NULL AND NOT by_hand;

CREATE FUNCTION refuse_change_to_settled_pricing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('app.erasure', true) = 'on' AND to_jsonb(NEW) - ARRAY['request_body', 'response_body']
        = to_jsonb(OLD) - ARRAY['request_body', 'response_body']
    THEN
        RETURN NEW;
    END IF;
    IF OLD.outcome IS NOT NULL OR (NEW.account_id, NEW.invoice_id, NEW.position, NEW.attempt, NEW.by_hand, NEW.url,
        NEW.cap_cents, NEW.request_body, NEW.created_at) IS DISTINCT FROM (OLD.account_id, OLD.invoice_id,
        OLD.position, OLD.attempt, OLD.by_hand, OLD.url, OLD.cap_cents, OLD.request_body, OLD.created_at)
    THEN
        RAISE EXCEPTION 'a settled pricing attempt cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pricing_attempt_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER pricing_attempt_frozen BEFORE UPDATE ON pricing_attempt
    FOR EACH ROW EXECUTE FUNCTION refuse_change_to_settled_pricing();
-- The row of a call that could not be made has no outcome, and may be deleted.
CREATE TRIGGER pricing_attempt_kept BEFORE DELETE ON pricing_attempt
    FOR EACH ROW WHEN (OLD.outcome IS NOT NULL) EXECUTE FUNCTION refuse_unless_old();
