-- Accounts, their counters, credentials and gateway connections.
-- In every table with a column `account_id`, this column comes first in each key, unique index and foreign key. So a
-- row cannot refer to a row of another account.

-- `recovering_since` (real time) is set while `fatura restored` compares the account with its gateways. During the
-- comparison, nothing is billed. `restored_at` (account's clock) is when the newest comparison ended. `suspended_at`
-- (real time) is set while an operator has suspended the account. `resumed_at` (account's clock) is when an operator
-- most recently resumed the account. `pay_page_name`, `pay_page_color` and `pay_page_logo` (a PNG file) are how the
-- pay pages of the account look; without a name, they show `name`.
CREATE TABLE account (
    account_id uuid NOT NULL,
    name text NOT NULL,
    mode text NOT NULL,
    currency text NOT NULL,
    clock_offset interval NOT NULL,
    created_at timestamptz NOT NULL,
    recovering_since timestamptz,
    restored_at timestamptz,
    suspended_at timestamptz,
    resumed_at timestamptz,
    pay_page_name text,
    pay_page_color text,
    pay_page_logo bytea,
    CONSTRAINT account_pk PRIMARY KEY (account_id),
    CONSTRAINT account_mode CHECK (mode IN ('live', 'sandbox')),
    CONSTRAINT account_currency CHECK (currency ~ '^[A-Z]{3}$'),
    -- a day more than `account.MAX_CLOCK_OFFSET`, because the clocks of two hosts may differ
    CONSTRAINT account_clock CHECK (
        clock_offset BETWEEN interval '0' AND interval '10958 days'
        AND (mode = 'sandbox' OR clock_offset = interval '0')
    ),
    CONSTRAINT account_pay_page_color CHECK (pay_page_color ~ '^#[0-9a-f]{6}$'),
    CONSTRAINT account_pay_page_logo CHECK (octet_length(pay_page_logo) BETWEEN 1 AND 32768)
);
-- Discovery reads the accounts with a moved clock from this index, and all others from indexes that begin with a time.
CREATE INDEX account_by_clock ON account (clock_offset);
CREATE INDEX account_suspended ON account (account_id) WHERE suspended_at IS NOT NULL;

-- One row per account. Transactions that bill or record charges hold a share lock on the row until they end. A command
-- that has stored `suspended_at` or `recovering_since` then locks the row, to wait for these transactions. Share locks
-- do not conflict with each other, so nothing else waits (ADR 0019).
CREATE TABLE account_gate (
    account_id uuid NOT NULL,
    CONSTRAINT account_gate_pk PRIMARY KEY (account_id),
    CONSTRAINT account_gate_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id)
);

-- One row per account: the numbers of its newest event and newest audit entry, the totals that list pages show, and
-- `plan_items`, the number of items of all versions of plans and of the current private terms of subscriptions, except
-- those private terms of canceled subscriptions that have billed an invoice. A transaction updates the row in one of
-- its last statements, and holds the row's lock until the commit. So the numbers of events and entries follow the order
-- of commits without gaps. `last_audited_at` is the time of the newest audit entry. `untaken_events` is true while an
-- enabled webhook may have events without deliveries. Discovery reads it (ADR 0016).
CREATE TABLE account_counter (
    account_id uuid NOT NULL,
    last_sequence bigint NOT NULL DEFAULT 0,
    last_audit_sequence bigint NOT NULL DEFAULT 0,
    last_audited_at timestamptz,
    webhook_enabled boolean NOT NULL DEFAULT false,
    untaken_events boolean NOT NULL DEFAULT false,
    products bigint NOT NULL DEFAULT 0,
    plans bigint NOT NULL DEFAULT 0,
    plan_items bigint NOT NULL DEFAULT 0,
    customers bigint NOT NULL DEFAULT 0,
    subscriptions_active bigint NOT NULL DEFAULT 0,
    subscriptions_canceled bigint NOT NULL DEFAULT 0,
    invoices_draft bigint NOT NULL DEFAULT 0,
    invoices_awaiting_value bigint NOT NULL DEFAULT 0,
    invoices_ready bigint NOT NULL DEFAULT 0,
    invoices_issued bigint NOT NULL DEFAULT 0,
    invoices_paid bigint NOT NULL DEFAULT 0,
    invoices_overdue bigint NOT NULL DEFAULT 0,
    invoices_canceled bigint NOT NULL DEFAULT 0,
    CONSTRAINT account_counter_pk PRIMARY KEY (account_id),
    CONSTRAINT account_counter_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT account_counter_not_negative CHECK (
        least(
            last_sequence, last_audit_sequence, products, plans, plan_items, customers, subscriptions_active,
            subscriptions_canceled, invoices_draft, invoices_awaiting_value, invoices_ready, invoices_issued, invoices_paid, invoices_overdue,
            invoices_canceled
        ) >= 0
    )
) WITH (fillfactor = 50);
CREATE INDEX account_counter_untaken ON account_counter (account_id) WHERE untaken_events;

-- `expires_at` and `revoked_at` are instants of the account's clock.
CREATE TABLE api_key (
    account_id uuid NOT NULL,
    api_key_id uuid NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    secret_hash bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_key_pk PRIMARY KEY (account_id, api_key_id),
    CONSTRAINT api_key_hash_once UNIQUE (account_id, secret_hash),
    CONSTRAINT api_key_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT api_key_scopes CHECK (scopes <@ ARRAY['read', 'write', 'admin'] AND cardinality(scopes) >= 1)
);
CREATE INDEX api_key_usable ON api_key (account_id) WHERE revoked_at IS NULL;

CREATE TABLE integration_secret (
    account_id uuid NOT NULL,
    integration_secret_id uuid NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL,
    valid_until timestamptz,
    CONSTRAINT integration_secret_pk PRIMARY KEY (account_id, integration_secret_id),
    CONSTRAINT integration_secret_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id)
);
CREATE UNIQUE INDEX integration_secret_one_current ON integration_secret (account_id) WHERE valid_until IS NULL;

-- `key` is the SHA-256 of the Idempotency-Key, in hexadecimal, because merchants make keys from data of customers.
-- `status` and `answer` are null while the request waits for a third party. A repeat may continue the request after
-- `in_progress_until` (real time).
CREATE TABLE idempotency_key (
    account_id uuid NOT NULL,
    key text NOT NULL,
    route text NOT NULL,
    body_hash bytea NOT NULL,
    status smallint,
    answer bytea,
    is_sealed boolean NOT NULL DEFAULT false,
    expires_at timestamptz NOT NULL,
    in_progress_until timestamptz,
    CONSTRAINT idempotency_key_pk PRIMARY KEY (account_id, key),
    CONSTRAINT idempotency_key_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT idempotency_key_answered CHECK (
        (status IS NULL) = (answer IS NULL) AND (status IS NULL OR in_progress_until IS NULL)
    )
);
CREATE INDEX idempotency_key_expiry ON idempotency_key (expires_at, account_id);

-- `provider_account` is the provider's own id of the account to which the credentials belong. Once set,
-- it never changes, because the credentials of another account could not read the earlier charges.
CREATE TABLE gateway_connection (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    provider text NOT NULL,
    label text,
    active boolean NOT NULL,
    issues_charges boolean NOT NULL,
    methods text[] NOT NULL,
    max_installments smallint NOT NULL,
    product_catalog boolean NOT NULL,
    refunds boolean NOT NULL,
    settings jsonb NOT NULL,
    credentials_sealed bytea NOT NULL,
    provider_account text,
    min_amount_cents bigint,
    min_installment_cents bigint,
    credentials_expire_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT gateway_connection_pk PRIMARY KEY (account_id, connection_id),
    CONSTRAINT gateway_connection_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT gateway_connection_methods CHECK (methods <@ ARRAY['card', 'pix', 'boleto']),
    CONSTRAINT gateway_connection_installments CHECK (max_installments BETWEEN 1 AND 12),
    CONSTRAINT gateway_connection_minimums CHECK (min_amount_cents >= 1 AND min_installment_cents >= 1)
);

CREATE FUNCTION refuse_other_provider_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.provider_account IS DISTINCT FROM OLD.provider_account AND OLD.provider_account IS NOT NULL THEN
        RAISE EXCEPTION 'the account of a gateway connection at its provider cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'gateway_connection_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER gateway_connection_frozen BEFORE UPDATE ON gateway_connection
    FOR EACH ROW EXECUTE FUNCTION refuse_other_provider_account();

-- Whether a connection's calls succeed; one row per connection. These columns are not in `gateway_connection`: a call
-- must not wait for a request that changes the connection, and discovery reads the columns for all accounts.
-- A connection is failing while `next_probe_at` (account's clock) is set. `lease_until` (real time) is when a worker's
-- lease for the probe ends. `failed_reads` counts the failed reads since the last successful read; `reads_reported` is
-- true if these failures have lasted an hour. `polls_from` (real time) is when the budget of `polls_per_minute` allows the next poll.
-- `told_expiry` is the end of the credentials about which an event has told the merchant.
-- A look (D-162) or late look-up (D-125) must also wait until `looks_from`, because they use at most half of this budget.
-- `polled_named` is true if the newest of the scheduled polls in this budget was of a charge that a webhook had named.
-- `looked` is true if looks or late look-ups have used this budget since the newest of these polls. `looked_late` is true
-- if late look-ups have used it since the newest looks.
CREATE TABLE connection_health (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    failures integer NOT NULL DEFAULT 0,
    failing_since timestamptz,
    next_probe_at timestamptz,
    probes integer NOT NULL DEFAULT 0,
    emitted boolean NOT NULL DEFAULT false,
    error_code text,
    error_detail text,
    paused_at timestamptz,
    lease_until timestamptz,
    polls_per_minute integer,
    polls_from timestamptz,
    looks_from timestamptz,
    polled_named boolean NOT NULL DEFAULT false,
    looked boolean NOT NULL DEFAULT false,
    looked_late boolean NOT NULL DEFAULT false,
    failed_reads integer NOT NULL DEFAULT 0,
    reads_failing_since timestamptz,
    reads_reported boolean NOT NULL DEFAULT false,
    read_error_code text,
    read_error_detail text,
    told_expiry timestamptz,
    CONSTRAINT connection_health_pk PRIMARY KEY (account_id, connection_id),
    CONSTRAINT connection_health_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT connection_health_failing CHECK (
        CASE
            WHEN failures = 0 THEN
                next_probe_at IS NULL AND probes = 0 AND emitted = reads_reported
            WHEN failures < 3 THEN next_probe_at IS NULL AND emitted = reads_reported
            ELSE next_probe_at IS NOT NULL AND emitted >= reads_reported
        END IS TRUE
        AND (failures = 0) = (failing_since IS NULL) AND (failures = 0) = (error_code IS NULL)
        AND failures >= 0 AND probes >= 0 AND (polls_per_minute >= 1 OR polls_per_minute IS NULL) AND (error_code IS NULL) = (error_detail IS NULL)
    ),
    CONSTRAINT connection_health_reads CHECK (
        failed_reads >= 0 AND (failed_reads >= 3 OR NOT reads_reported)
        AND (failed_reads = 0) = (reads_failing_since IS NULL) AND (failed_reads = 0) = (read_error_code IS NULL)
        AND (read_error_code IS NULL) = (read_error_detail IS NULL)
    )
) WITH (fillfactor = 70);
CREATE INDEX connection_health_probes ON connection_health (account_id) WHERE next_probe_at IS NOT NULL;

-- The id of every account that was opened. On Citus, this table stays on the coordinator, so `fatura check` notices
-- accounts whose rows were lost while their shards were moved. It has no `account_id`, so that it is not distributed.
CREATE TABLE opened_account (
    id uuid NOT NULL,
    opened_at timestamptz NOT NULL,
    CONSTRAINT opened_account_pk PRIMARY KEY (id)
);

-- The key of the authentication tags in API keys and connection ids, encrypted with the key ring (ADR 0018). All
-- accounts share it, because a tag is checked before the database is asked. So it has no `account_id`, and is not
-- distributed.
CREATE TABLE tag_key (
    id uuid NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT tag_key_pk PRIMARY KEY (id),
    CONSTRAINT tag_key_one_row CHECK (id = '00000000-0000-0000-0000-000000000000')
);

-- Called by triggers on operations that a table never allows, such as DELETE.
CREATE FUNCTION refuse_any_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows are kept as they are', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = 'row_kept';
END
$$;

-- Called by triggers on rows that never change, with one exception: in a transaction that sets `app.erasure`, the
-- columns that the trigger names may change, so that the data of an erased customer can be removed (D-226).
CREATE FUNCTION keep_unless_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND current_setting('app.erasure', true) = 'on'
        AND to_jsonb(NEW) - TG_ARGV = to_jsonb(OLD) - TG_ARGV
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% of % is refused: its rows are kept as they are', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = 'row_kept';
END
$$;

CREATE TRIGGER opened_account_kept BEFORE UPDATE OR DELETE ON opened_account
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER tag_key_kept BEFORE DELETE ON tag_key FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- Called by triggers on operations that are refused, except the deletion of old rows in a transaction that sets
-- `app.retention`.
CREATE FUNCTION refuse_unless_old() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('app.retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of % is refused: its rows are kept as they are', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = 'row_kept';
END
$$;

-- How far the old rows of an account are deleted: one row for each kind of rows. Workers look for old rows when a row
-- that was stored at `kept_from` (real time) becomes old. Rows with numbers up to `deleted_to` are deleted. For the
-- attempts to deliver events, `deleted_to` is the highest event number of which an attempt is deleted. The newest
-- deleted event was created at `deleted_until` (account's clock).
CREATE TABLE retention (
    account_id uuid NOT NULL,
    kind text NOT NULL,
    kept_from timestamptz NOT NULL,
    deleted_to bigint NOT NULL DEFAULT 0,
    deleted_until timestamptz,
    CONSTRAINT retention_pk PRIMARY KEY (account_id, kind),
    CONSTRAINT retention_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT retention_kind CHECK (kind IN ('events', 'deliveries', 'price_calls', 'audit', 'gateway_webhooks', 'charge_calls')),
    CONSTRAINT retention_deleted CHECK (deleted_to >= 0)
) WITH (fillfactor = 70);
CREATE INDEX retention_by_time ON retention (kind, kept_from);

-- The audit log. `created_at` (account's clock) never decreases with `sequence`. `before` and `after` are JSON objects
-- without personal data and secrets. No entry is ever changed. `stored_at` is real time.
CREATE TABLE audit_entry (
    account_id uuid NOT NULL,
    sequence bigint NOT NULL,
    audit_entry_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    actor_kind text NOT NULL,
    actor_id uuid,
    actor_name text NOT NULL,
    action text NOT NULL,
    resource_type text NOT NULL,
    resource_id text NOT NULL,
    request_id text,
    address text,
    before text,
    after text,
    stored_at timestamptz NOT NULL,
    CONSTRAINT audit_entry_pk PRIMARY KEY (account_id, sequence),
    CONSTRAINT audit_entry_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT audit_entry_actor CHECK (
        CASE
            WHEN actor_kind IN ('api_key', 'user') THEN actor_id IS NOT NULL AND request_id IS NOT NULL
            ELSE actor_kind IN ('operator', 'engine') AND actor_id IS NULL
        END
    )
);
CREATE INDEX audit_entry_by_time ON audit_entry (account_id, created_at, sequence);
CREATE INDEX audit_entry_by_resource ON audit_entry (account_id, resource_id, sequence);
CREATE INDEX audit_entry_by_action ON audit_entry (account_id, action, sequence);
CREATE INDEX audit_entry_by_actor ON audit_entry (account_id, actor_id, sequence) WHERE actor_id IS NOT NULL;
CREATE INDEX audit_entry_by_kind ON audit_entry (account_id, actor_kind, sequence) WHERE actor_kind <> 'api_key';

CREATE TRIGGER audit_entry_kept BEFORE UPDATE OR DELETE ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_old();
