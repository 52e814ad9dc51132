-- The event stream and its delivery to the webhook of the account.

-- `data` is the exact text that the API returns and the webhook gets. It changes only when a customer is erased. The
-- erasure finds the customer's events by `event_by_invoice` and `event_by_subscription`. Ids grow with time, so new
-- events are added at the end of these indexes. `stored_at` is real time.
CREATE TABLE event (
    account_id uuid NOT NULL,
    sequence bigint NOT NULL,
    event_id uuid NOT NULL,
    type text NOT NULL,
    created_at timestamptz NOT NULL,
    subscription_id uuid,
    invoice_id uuid,
    data text NOT NULL,
    stored_at timestamptz NOT NULL,
    CONSTRAINT event_pk PRIMARY KEY (account_id, sequence),
    CONSTRAINT event_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id)
);
CREATE INDEX event_by_type ON event (account_id, type, sequence);
CREATE UNIQUE INDEX event_id_once ON event (account_id, event_id);
CREATE INDEX event_by_invoice ON event (account_id, invoice_id, sequence) WHERE invoice_id IS NOT NULL;
CREATE INDEX event_by_subscription ON event (account_id, subscription_id, sequence)
    WHERE invoice_id IS NULL AND subscription_id IS NOT NULL;
CREATE TRIGGER event_kept BEFORE UPDATE ON event FOR EACH ROW EXECUTE FUNCTION keep_unless_erased('data');
CREATE TRIGGER event_deleted BEFORE DELETE ON event FOR EACH ROW EXECUTE FUNCTION refuse_unless_old();

-- Only events with numbers up to `fanned_out_to` can have a delivery. At most `at_once` requests run concurrently.
-- `next_attempt_at` (account's clock) is set while the endpoint fails or after it asked for a pause: no request is sent
-- before that instant. Until `lease_until` (real time), only the worker `leased_by` sends requests.
-- `push_at` (account's clock) is never later than the instant at which the next delivery is due. It is null if no
-- delivery is open.
-- `failing_since` is on the account's clock, and `real_failing_since` is the same instant in real time.
-- `delivered` and `failed` count pushes since the newest advance of the test clock began.
CREATE TABLE webhook (
    account_id uuid NOT NULL,
    url text NOT NULL,
    created_at timestamptz NOT NULL,
    disabled_at timestamptz,
    fanned_out_to bigint NOT NULL,
    at_once smallint NOT NULL DEFAULT 1,
    failures integer NOT NULL DEFAULT 0,
    failing_since timestamptz,
    real_failing_since timestamptz,
    last_delivered_at timestamptz,
    next_attempt_at timestamptz,
    leased_by uuid,
    lease_until timestamptz,
    push_at timestamptz,
    delivered bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    CONSTRAINT webhook_pk PRIMARY KEY (account_id),
    CONSTRAINT webhook_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT webhook_at_once CHECK (at_once BETWEEN 1 AND 64),
    CONSTRAINT webhook_failures CHECK (
        (failures > 0) = (failing_since IS NOT NULL) AND (failing_since IS NULL) = (real_failing_since IS NULL)
        AND failures >= 0
    ),
    CONSTRAINT webhook_pushes CHECK (delivered >= 0 AND failed >= 0)
) WITH (fillfactor = 50);
CREATE INDEX webhook_by_time ON webhook (push_at) WHERE disabled_at IS NULL AND push_at IS NOT NULL;

-- A delivery is open while `next_attempt_at` is set. It is closed when it is delivered or given up.
-- `delivered_at` is kept if a delivered event is sent again. Open deliveries with the same `ordered_by` (the
-- invoice's id) are sent in the order of their numbers. `waits` of an open delivery is true while an earlier
-- delivery of the invoice is open, and false when the delivery may be sent. A closed delivery keeps its `waits` until a
-- worker has unblocked the next delivery of the invoice. After that, its `waits` is null.
CREATE TABLE delivery (
    account_id uuid NOT NULL,
    sequence bigint NOT NULL,
    ordered_by uuid,
    waits boolean DEFAULT false,
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
    CONSTRAINT delivery_state CHECK (
        CASE
            WHEN next_attempt_at IS NOT NULL THEN given_up_at IS NULL
            ELSE num_nonnulls(delivered_at, given_up_at) = 1
        END
    ),
    CONSTRAINT delivery_attempts CHECK (attempts >= failures AND failures >= 0)
) WITH (fillfactor = 70);
CREATE INDEX delivery_ready ON delivery (account_id, sequence, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL AND waits IS NOT TRUE;
CREATE INDEX delivery_turn_kept ON delivery (account_id, sequence)
    WHERE next_attempt_at IS NULL AND waits IS NOT NULL;
CREATE INDEX delivery_order ON delivery (account_id, ordered_by, sequence) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX delivery_given_up ON delivery (account_id, given_up_at) WHERE given_up_at IS NOT NULL;
CREATE TRIGGER delivery_kept BEFORE DELETE ON delivery FOR EACH ROW EXECUTE FUNCTION refuse_unless_old();

-- `created_at` is on the account's clock, `stored_at` is real time.
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
    stored_at timestamptz NOT NULL,
    CONSTRAINT delivery_attempt_pk PRIMARY KEY (account_id, sequence, attempt),
    CONSTRAINT delivery_attempt_delivery_fk FOREIGN KEY (account_id, sequence)
        REFERENCES delivery (account_id, sequence),
    CONSTRAINT delivery_attempt_outcome CHECK (outcome IN ('delivered', 'timeout', 'http_error'))
);
CREATE INDEX delivery_attempt_by_time ON delivery_attempt (account_id, stored_at);
CREATE TRIGGER delivery_attempt_kept BEFORE UPDATE ON delivery_attempt
    FOR EACH ROW EXECUTE FUNCTION keep_unless_erased('response_body');
CREATE TRIGGER delivery_attempt_deleted BEFORE DELETE ON delivery_attempt
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_old();
