-- Customers and their subscriptions.

-- Searches compare `name_key` and `email_key`, which `fatura.domain.customer_search` computes, and `document_hash`. A
-- search cannot compare `lower(name)`: under Row Level Security, an index serves only leakproof functions, and `lower`
-- is not leakproof. `document_hash` is an HMAC; its key is derived from the key that encrypts the document.
-- A customer without an e-mail is erased, and never changes again. `erased_at` (account's clock) is set when the
-- customer's data is also removed from all other rows.
CREATE TABLE customer (
    account_id uuid NOT NULL,
    customer_id uuid NOT NULL,
    external_ref text NOT NULL,
    name text NOT NULL,
    email text,
    name_key text COLLATE "C" NOT NULL,
    email_key text COLLATE "C",
    document_sealed bytea,
    document_hash bytea,
    created_at timestamptz NOT NULL,
    erased_at timestamptz,
    CONSTRAINT customer_pk PRIMARY KEY (account_id, customer_id),
    CONSTRAINT customer_ref_once UNIQUE (account_id, external_ref),
    CONSTRAINT customer_account_fk FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT customer_document CHECK (
        CASE
            WHEN document_sealed IS NULL THEN document_hash IS NULL
            ELSE substr(document_hash, 1, 4) = substr(document_sealed, 1, 4)
        END IS TRUE
    ),
    CONSTRAINT customer_erased CHECK (
        CASE
            WHEN email IS NULL THEN
                num_nonnulls(email_key, document_sealed) = 0 AND name = '[erased]'
                AND external_ref = 'erased-' || customer_id::text
            ELSE email_key IS NOT NULL AND erased_at IS NULL AND NOT starts_with(external_ref, 'erased-')
        END IS TRUE
    )
);
CREATE INDEX customer_by_name ON customer (account_id, name_key);
CREATE INDEX customer_by_email ON customer (account_id, email_key);
CREATE INDEX customer_by_document ON customer (account_id, document_hash) WHERE document_hash IS NOT NULL;

CREATE FUNCTION refuse_change_to_erased_customer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.erased_at IS NOT NULL OR to_jsonb(NEW) - 'erased_at' <> to_jsonb(OLD) - 'erased_at' THEN
        RAISE EXCEPTION 'an erased customer cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'customer_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER customer_frozen BEFORE UPDATE ON customer
    FOR EACH ROW WHEN (OLD.email IS NULL) EXECUTE FUNCTION refuse_change_to_erased_customer();

-- The erasure of a customer (D-62), and its progress. The customer's own row is erased when the erasure begins. Then
-- the data disappears in batches: from the subscriptions with ids up to `visited_id`; from the invoices up to the cycle
-- `visited_cycle` of the subscription `visited_id`; and from the stored answers with keys up to `visited_key`. A
-- finished erasure is kept: it is exported, and applied again after a restore from a backup. `next_attempt_at` is when
-- a worker may run the next batch. All times are on the account's clock.
CREATE TABLE erasure (
    account_id uuid NOT NULL,
    customer_id uuid NOT NULL,
    requested_at timestamptz NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    stage text NOT NULL,
    visited_id uuid,
    visited_cycle integer,
    visited_key text,
    CONSTRAINT erasure_pk PRIMARY KEY (account_id, customer_id),
    CONSTRAINT erasure_customer_fk FOREIGN KEY (account_id, customer_id)
        REFERENCES customer (account_id, customer_id),
    CONSTRAINT erasure_stage CHECK (
        CASE stage
            WHEN 'subscriptions' THEN num_nonnulls(visited_cycle, visited_key) = 0
            WHEN 'invoices' THEN visited_key IS NULL AND (visited_id IS NULL) = (visited_cycle IS NULL)
            WHEN 'answers' THEN num_nonnulls(visited_id, visited_cycle) = 0
            WHEN 'done' THEN num_nonnulls(visited_id, visited_cycle, visited_key) = 0
            ELSE false
        END
    )
) WITH (fillfactor = 50);
CREATE INDEX erasure_running ON erasure (account_id, next_attempt_at) WHERE stage <> 'done';
CREATE INDEX erasure_by_time ON erasure (next_attempt_at) WHERE stage <> 'done' AND next_attempt_at > '-infinity';
CREATE TRIGGER erasure_kept BEFORE DELETE ON erasure FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- `start_cycle` is the cycle of the subscription's first invoice. `cycle_count` is the cycle of its newest invoice.
-- `generate_at` (account's clock) is when the next cycle becomes due for generation. If the generation fails,
-- `generate_at` stays, and the next try is at `put_off_until` or later. `failures` counts the failures since the newest
-- invoice. `failure_emitted` is true if `subscription.billing_failed` was emitted since the newest invoice.
CREATE TABLE subscription (
    account_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    external_ref text,
    plan_id uuid NOT NULL,
    plan_version_id uuid NOT NULL,
    plan_version integer NOT NULL,
    customized boolean NOT NULL,
    customer_id uuid NOT NULL,
    status text NOT NULL,
    charge_day smallint NOT NULL,
    payment_method text NOT NULL,
    payment_method_source text NOT NULL,
    connection_id uuid NOT NULL,
    start_cycle integer NOT NULL,
    cycle_count integer NOT NULL,
    commitment_cycles integer,
    next_period_start date NOT NULL,
    next_due_date date NOT NULL,
    generate_at timestamptz NOT NULL,
    failures integer NOT NULL DEFAULT 0,
    put_off_until timestamptz,
    failure_emitted boolean NOT NULL DEFAULT false,
    started_at timestamptz NOT NULL,
    canceled_at timestamptz,
    CONSTRAINT subscription_pk PRIMARY KEY (account_id, subscription_id),
    CONSTRAINT subscription_plan_fk FOREIGN KEY (account_id, plan_id) REFERENCES plan (account_id, plan_id),
    CONSTRAINT subscription_version_fk FOREIGN KEY (account_id, plan_version_id)
        REFERENCES plan_version (account_id, plan_version_id),
    CONSTRAINT subscription_customer_fk FOREIGN KEY (account_id, customer_id)
        REFERENCES customer (account_id, customer_id),
    CONSTRAINT subscription_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT subscription_status CHECK (
        (status = 'active' AND canceled_at IS NULL) OR (status = 'canceled' AND canceled_at IS NOT NULL)
    ),
    CONSTRAINT subscription_charge_day CHECK (charge_day BETWEEN 1 AND 28),
    CONSTRAINT subscription_method CHECK (payment_method IN ('card', 'pix', 'boleto')),
    CONSTRAINT subscription_method_source CHECK (payment_method_source IN ('plan_default', 'override')),
    CONSTRAINT subscription_start CHECK (start_cycle BETWEEN 1 AND 1200),
    CONSTRAINT subscription_cycles CHECK (cycle_count >= start_cycle - 1),
    CONSTRAINT subscription_put_off CHECK (failures >= 0 AND (failures > 0) = (put_off_until IS NOT NULL)
        AND (failures > 0 OR NOT failure_emitted)),
    CONSTRAINT subscription_commitment CHECK (commitment_cycles >= 1)
) WITH (fillfactor = 85);
-- Claims read the due subscriptions of one account. Discovery reads those of all accounts (ADR 0016).
CREATE INDEX subscription_due ON subscription (account_id, generate_at)
    WHERE status = 'active' AND put_off_until IS NULL;
CREATE INDEX subscription_by_time ON subscription (generate_at)
    WHERE status = 'active' AND put_off_until IS NULL AND generate_at > '-infinity';
CREATE INDEX subscription_retry ON subscription (account_id, put_off_until)
    WHERE status = 'active' AND put_off_until IS NOT NULL;
CREATE INDEX subscription_retry_by_time ON subscription (put_off_until)
    WHERE status = 'active' AND put_off_until > '-infinity';
CREATE INDEX subscription_of_customer ON subscription (account_id, customer_id);
CREATE INDEX subscription_of_plan ON subscription (account_id, plan_id, subscription_id);
CREATE INDEX subscription_by_ref ON subscription (account_id, external_ref)
    WHERE external_ref IS NOT NULL;
CREATE TRIGGER subscription_start_kept BEFORE UPDATE OF start_cycle ON subscription
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- The history of a subscription's terms, with a row for each change. The terms of a row bill the cycles from
-- `from_cycle` on, until the terms of the next row apply. If two rows have the same `from_cycle`, the later row counts.
CREATE TABLE subscription_terms (
    account_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    number integer NOT NULL,
    from_cycle integer NOT NULL,
    plan_version_id uuid NOT NULL,
    reason text NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT subscription_terms_pk PRIMARY KEY (account_id, subscription_id, number),
    CONSTRAINT subscription_terms_subscription_fk FOREIGN KEY (account_id, subscription_id)
        REFERENCES subscription (account_id, subscription_id),
    CONSTRAINT subscription_terms_version_fk FOREIGN KEY (account_id, plan_version_id)
        REFERENCES plan_version (account_id, plan_version_id),
    CONSTRAINT subscription_terms_cycle CHECK (from_cycle >= 1),
    CONSTRAINT subscription_terms_reason CHECK (reason IN ('enrolled', 'customized', 'propagated')),
    CONSTRAINT subscription_terms_first CHECK (number >= 1 AND (number = 1) = (reason = 'enrolled'))
);
CREATE TRIGGER subscription_terms_kept BEFORE UPDATE OR DELETE ON subscription_terms
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- A request to move a plan's subscribers to a version, and its progress. Subscribers with ids up to `visited_to` were
-- moved or skipped. `worked_at` (account's clock) is when the newest batch was committed. `cents_before` and
-- `cents_after` are the totals of the moved subscribers' next invoices under the old and the new terms. These sums can
-- exceed a bigint.
CREATE TABLE propagation (
    account_id uuid NOT NULL,
    propagation_id uuid NOT NULL,
    plan_id uuid NOT NULL,
    plan_version_id uuid NOT NULL,
    version integer NOT NULL,
    from_version integer,
    status text NOT NULL,
    visited_to uuid,
    moved bigint NOT NULL,
    skipped bigint NOT NULL,
    cents_before numeric NOT NULL,
    cents_after numeric NOT NULL,
    created_at timestamptz NOT NULL,
    worked_at timestamptz NOT NULL,
    ended_at timestamptz,
    CONSTRAINT propagation_pk PRIMARY KEY (account_id, propagation_id),
    CONSTRAINT propagation_plan_fk FOREIGN KEY (account_id, plan_id) REFERENCES plan (account_id, plan_id),
    CONSTRAINT propagation_version_fk FOREIGN KEY (account_id, plan_version_id)
        REFERENCES plan_version (account_id, plan_version_id),
    CONSTRAINT propagation_status CHECK (
        (status = 'running' AND ended_at IS NULL) OR (status IN ('done', 'replaced') AND ended_at IS NOT NULL)
    ),
    CONSTRAINT propagation_progress CHECK (
        moved >= 0 AND skipped >= 0 AND cents_before >= 0 AND cents_after >= 0
        AND cents_before = trunc(cents_before) AND cents_after = trunc(cents_after)
    )
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX propagation_one_running ON propagation (account_id, plan_id) WHERE status = 'running';
CREATE INDEX propagation_running ON propagation (account_id, worked_at) WHERE status = 'running';
CREATE INDEX propagation_by_time ON propagation (worked_at) WHERE status = 'running' AND worked_at > '-infinity';
CREATE INDEX propagation_of_plan ON propagation (account_id, plan_id, propagation_id);

CREATE FUNCTION refuse_change_to_propagation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status <> 'running' OR (NEW.account_id, NEW.propagation_id, NEW.plan_id, NEW.plan_version_id, NEW.version,
        NEW.created_at) IS DISTINCT FROM (OLD.account_id, OLD.propagation_id, OLD.plan_id, OLD.plan_version_id,
        OLD.version, OLD.created_at) OR NEW.from_version IS DISTINCT FROM OLD.from_version
    THEN
        RAISE EXCEPTION 'an ended propagation, or the target of a propagation, cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'propagation_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER propagation_frozen BEFORE UPDATE ON propagation
    FOR EACH ROW EXECUTE FUNCTION refuse_change_to_propagation();
CREATE TRIGGER propagation_kept BEFORE DELETE ON propagation FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- The subscribers that a propagation did not move, because they could not be billed by the new terms, or because of an
-- unexpected error. The rows are deleted when a later propagation of the plan starts.
CREATE TABLE propagation_skip (
    account_id uuid NOT NULL,
    propagation_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    reason text NOT NULL,
    CONSTRAINT propagation_skip_pk PRIMARY KEY (account_id, propagation_id, subscription_id),
    CONSTRAINT propagation_skip_propagation_fk FOREIGN KEY (account_id, propagation_id)
        REFERENCES propagation (account_id, propagation_id),
    CONSTRAINT propagation_skip_subscription_fk FOREIGN KEY (account_id, subscription_id)
        REFERENCES subscription (account_id, subscription_id),
    CONSTRAINT propagation_skip_reason CHECK (
        reason IN (
            'gateway_connection_inactive', 'payment_method_unsupported', 'installments_unsupported',
            'amount_unsupported', 'failed'
        )
    )
);
CREATE TRIGGER propagation_skip_kept BEFORE UPDATE ON propagation_skip
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- A request to move the active subscriptions of a connection to another connection, and its progress (D-59).
-- Subscriptions with ids up to `visited_to` were moved or skipped. `worked_at` (account's clock) is when the newest
-- batch was committed.
CREATE TABLE connection_move (
    account_id uuid NOT NULL,
    connection_move_id uuid NOT NULL,
    from_connection_id uuid NOT NULL,
    to_connection_id uuid NOT NULL,
    status text NOT NULL,
    visited_to uuid,
    moved bigint NOT NULL,
    skipped bigint NOT NULL,
    created_at timestamptz NOT NULL,
    worked_at timestamptz NOT NULL,
    ended_at timestamptz,
    CONSTRAINT connection_move_pk PRIMARY KEY (account_id, connection_move_id),
    CONSTRAINT connection_move_from_fk FOREIGN KEY (account_id, from_connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT connection_move_to_fk FOREIGN KEY (account_id, to_connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT connection_move_elsewhere CHECK (from_connection_id <> to_connection_id),
    CONSTRAINT connection_move_status CHECK (
        (status = 'running' AND ended_at IS NULL) OR (status IN ('done', 'stopped') AND ended_at IS NOT NULL)
    ),
    CONSTRAINT connection_move_moved CHECK (moved >= 0 AND skipped >= 0)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX connection_move_one_running ON connection_move (account_id, from_connection_id)
    WHERE status = 'running';
CREATE INDEX connection_move_by_time ON connection_move (worked_at)
    WHERE status = 'running' AND worked_at > '-infinity';
CREATE INDEX connection_move_of_connection ON connection_move (account_id, from_connection_id, connection_move_id);

CREATE FUNCTION refuse_change_to_connection_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status <> 'running' OR (NEW.account_id, NEW.connection_move_id, NEW.from_connection_id,
        NEW.to_connection_id, NEW.created_at) IS DISTINCT FROM (OLD.account_id, OLD.connection_move_id,
        OLD.from_connection_id, OLD.to_connection_id, OLD.created_at)
    THEN
        RAISE EXCEPTION 'an ended move between connections, or the target of a move, cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'connection_move_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER connection_move_frozen BEFORE UPDATE ON connection_move
    FOR EACH ROW EXECUTE FUNCTION refuse_change_to_connection_move();
CREATE TRIGGER connection_move_kept BEFORE DELETE ON connection_move
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- The subscriptions that were not moved, because the target connection cannot bill them, or because of an unexpected
-- error. The rows are deleted when a later move from the connection starts.
CREATE TABLE connection_move_skip (
    account_id uuid NOT NULL,
    connection_move_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    reason text NOT NULL,
    CONSTRAINT connection_move_skip_pk PRIMARY KEY (account_id, connection_move_id, subscription_id),
    CONSTRAINT connection_move_skip_move_fk FOREIGN KEY (account_id, connection_move_id)
        REFERENCES connection_move (account_id, connection_move_id),
    CONSTRAINT connection_move_skip_sub_fk FOREIGN KEY (account_id, subscription_id)
        REFERENCES subscription (account_id, subscription_id),
    CONSTRAINT connection_move_skip_reason CHECK (
        reason IN ('payment_method_unsupported', 'installments_unsupported', 'amount_unsupported', 'failed')
    )
);
CREATE TRIGGER connection_move_skip_kept BEFORE UPDATE ON connection_move_skip
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- A version with private terms refers to the subscription that has these terms.
ALTER TABLE plan_version ADD CONSTRAINT plan_version_subscription_fk FOREIGN KEY (account_id, subscription_id)
    REFERENCES subscription (account_id, subscription_id);
