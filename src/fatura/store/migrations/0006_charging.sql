-- Charges of invoices, their payments and refunds, and checks for charges that a gateway creates late.

-- A charge is committed before its request is sent. At most one charge of an invoice is live: it can be paid, or it is
-- not certain whether it exists. `request_sealed` is the newest request, encrypted: a repeat sends the same request.
-- `known_charge_ids` are the gateway's charges that a restore or a webhook found for this request. The request of a
-- charge with known charges is never sent again. `asked_at` is when the gateway most recently confirmed the charge or
-- answered a poll. `listed_at` is when a sweep most recently found the charge in the provider's list. For a paid
-- charge, a sweep updates `listed_at` only after six days.
-- `erased` is set if the customer is erased. Then the row keeps no request, no pay data and no text of the gateway,
-- even if a later answer brings them.
CREATE TABLE charge (
    account_id uuid NOT NULL,
    charge_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    number integer NOT NULL,
    connection_id uuid NOT NULL,
    stage text NOT NULL,
    amount_cents bigint NOT NULL,
    currency text NOT NULL,
    payment_method text NOT NULL,
    installments smallint,
    due_date date NOT NULL,
    request_sealed bytea,
    created_at timestamptz NOT NULL,
    first_sent_at timestamptz NOT NULL,
    sent_at timestamptz NOT NULL,
    call_ends_at timestamptz,
    empty_lookups integer NOT NULL DEFAULT 0,
    looked_up_at timestamptz,
    known_charge_ids text[] NOT NULL DEFAULT '{}',
    gateway_invoice_id text,
    confirmed_at timestamptz,
    closed_at timestamptz,
    asked_at timestamptz,
    listed_at timestamptz,
    unknown_since timestamptz,
    error_code text,
    error_detail text,
    pay_url text,
    pix_code text,
    boleto_line text,
    pay_expires_at timestamptz,
    erased boolean NOT NULL DEFAULT false,
    CONSTRAINT charge_pk PRIMARY KEY (account_id, charge_id),
    CONSTRAINT charge_number_once UNIQUE (account_id, invoice_id, number),
    CONSTRAINT charge_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT charge_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT charge_stage CHECK (
        stage IN ('planned', 'sending', 'unknown', 'absent', 'parked', 'open', 'refused', 'expired', 'canceled', 'paid',
            'failed', 'missing')
    ),
    CONSTRAINT charge_number CHECK (number >= 1),
    CONSTRAINT charge_amount CHECK (amount_cents > 0),
    CONSTRAINT charge_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT charge_method CHECK (payment_method IN ('card', 'pix', 'boleto')),
    CONSTRAINT charge_installments CHECK (
        installments IS NULL OR (payment_method = 'card' AND installments BETWEEN 2 AND 12)
    ),
    CONSTRAINT charge_confirmed CHECK (
        (stage IN ('open', 'refused', 'expired', 'canceled', 'paid', 'missing')) = (gateway_invoice_id IS NOT NULL)
        AND (gateway_invoice_id IS NULL) = (confirmed_at IS NULL)
    ),
    CONSTRAINT charge_closed CHECK (
        (stage IN ('expired', 'canceled', 'paid', 'failed', 'missing')) = (closed_at IS NOT NULL)
    ),
    CONSTRAINT charge_error CHECK ((error_code IS NULL) = (error_detail IS NULL))
);
CREATE UNIQUE INDEX charge_one_live ON charge (account_id, invoice_id)
    WHERE stage IN ('sending', 'unknown', 'absent', 'parked', 'open', 'refused');
CREATE UNIQUE INDEX charge_gateway_id_once ON charge (account_id, connection_id, gateway_invoice_id)
    WHERE gateway_invoice_id IS NOT NULL;
CREATE INDEX charge_unknown ON charge (account_id, connection_id) WHERE stage = 'unknown';
CREATE INDEX charge_call ON charge (account_id, call_ends_at) WHERE call_ends_at IS NOT NULL;

-- A test checks that the pairs of stages below are those of `fatura.domain.charge`.
CREATE FUNCTION refuse_illegal_charge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.stage <> OLD.stage AND (OLD.stage || ' ' || NEW.stage) NOT IN (
        'planned sending', 'planned unknown', 'planned failed',
        'sending unknown', 'sending absent', 'sending parked', 'sending open', 'sending failed',
        'unknown absent', 'unknown parked', 'unknown open', 'unknown failed',
        'absent sending', 'absent unknown', 'absent parked', 'absent open', 'absent failed',
        'parked unknown', 'parked open', 'parked failed',
        'open paid', 'open refused', 'open expired', 'open canceled', 'open missing',
        'refused open', 'refused paid', 'refused expired', 'refused canceled', 'refused missing',
        'expired open', 'expired refused', 'expired paid', 'expired canceled', 'expired missing',
        'canceled paid',
        'missing open', 'missing refused', 'missing expired', 'missing paid', 'missing canceled'
    ) THEN
        RAISE EXCEPTION 'a charge cannot move from % to %', OLD.stage, NEW.stage
            USING ERRCODE = 'check_violation', CONSTRAINT = 'charge_move';
    END IF;
    IF (NEW.account_id, NEW.charge_id, NEW.invoice_id, NEW.connection_id, NEW.currency, NEW.payment_method,
        NEW.created_at)
        IS DISTINCT FROM
       (OLD.account_id, OLD.charge_id, OLD.invoice_id, OLD.connection_id, OLD.currency, OLD.payment_method,
        OLD.created_at)
        -- If `fatura restored` or a webhook found a gateway's charge for this charge, this charge may get a higher
        -- number and the gateway's amount, until it is confirmed.
        OR ((NEW.number, NEW.amount_cents) IS DISTINCT FROM (OLD.number, OLD.amount_cents)
            AND (NEW.number < OLD.number OR NEW.known_charge_ids = '{}' OR OLD.gateway_invoice_id IS NOT NULL
                OR OLD.closed_at IS NOT NULL))
        OR NEW.installments IS DISTINCT FROM OLD.installments
        OR (OLD.gateway_invoice_id IS NOT NULL AND (NEW.gateway_invoice_id, NEW.confirmed_at, NEW.due_date, NEW.sent_at)
            IS DISTINCT FROM (OLD.gateway_invoice_id, OLD.confirmed_at, OLD.due_date, OLD.sent_at))
        OR (OLD.stage IN ('failed', 'paid') AND (NEW.closed_at, NEW.due_date, NEW.sent_at)
            IS DISTINCT FROM (OLD.closed_at, OLD.due_date, OLD.sent_at))
        OR (OLD.stage = 'failed' AND (NEW.error_code, NEW.error_detail)
            IS DISTINCT FROM (OLD.error_code, OLD.error_detail))
        OR (OLD.erased AND NOT NEW.erased)
    THEN
        RAISE EXCEPTION 'a settled fact of a charge cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'charge_frozen';
    END IF;
    IF NEW.erased THEN
        NEW.request_sealed := NULL;
        NEW.pay_url := NULL;
        NEW.pix_code := NULL;
        NEW.boleto_line := NULL;
        NEW.pay_expires_at := NULL;
        IF NEW.error_detail IS NOT NULL THEN
            NEW.error_detail := '[erased]';
        END IF;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER charge_moves BEFORE UPDATE ON charge
    FOR EACH ROW EXECUTE FUNCTION refuse_illegal_charge();
CREATE TRIGGER charge_kept BEFORE DELETE ON charge
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- The ledger of an invoice. Entries are only added. `reference` is the provider's own id of the payment, refund or
-- dispute. It is unique for a connection and kind, so an answer that comes twice adds nothing. The entries of one
-- dispute have the same reference. `gateway_charge_id` is the gateway's id of the charge. `charge_id` is null if the
-- charge is a second charge, which the engine did not request, and for an entry that a person recorded. Imports of bank
-- statements compare `reference_key` (`bank_statement.same_id`).
CREATE TABLE payment_entry (
    account_id uuid NOT NULL,
    payment_entry_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    charge_id uuid,
    connection_id uuid,
    gateway_charge_id text,
    kind text NOT NULL,
    amount_cents bigint NOT NULL,
    fee_cents bigint NOT NULL,
    currency text NOT NULL,
    occurred_at timestamptz NOT NULL,
    source text NOT NULL,
    reference text,
    reference_key text COLLATE "C" GENERATED ALWAYS AS (
        CASE
            WHEN source <> 'manual' THEN NULL
            WHEN reference COLLATE "C" ~ '^[Ee][0-9]{20}[0-9A-Za-z]{11}$' THEN upper(reference)
            ELSE reference
        END
    ) STORED,
    method text,
    note text,
    recorded_at timestamptz NOT NULL,
    CONSTRAINT payment_entry_pk PRIMARY KEY (account_id, payment_entry_id),
    CONSTRAINT payment_entry_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT payment_entry_charge_fk FOREIGN KEY (account_id, charge_id)
        REFERENCES charge (account_id, charge_id),
    CONSTRAINT payment_entry_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT payment_entry_kind CHECK (
        kind IN ('payment', 'refund', 'dispute_opened', 'dispute_won', 'dispute_lost')
    ),
    CONSTRAINT payment_entry_amount CHECK (amount_cents > 0 AND fee_cents >= 0),
    CONSTRAINT payment_entry_occurred CHECK (
        occurred_at >= '2000-01-01T00:00:00Z' AND occurred_at <= '3000-01-01T00:00:00Z'
    ),
    CONSTRAINT payment_entry_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT payment_entry_method CHECK (method IN ('cash', 'transfer', 'pix', 'card', 'check', 'other')),
    CONSTRAINT payment_entry_source CHECK (
        CASE source
            WHEN 'gateway' THEN num_nonnulls(connection_id, gateway_charge_id, reference) = 3 AND method IS NULL
            WHEN 'manual' THEN num_nonnulls(charge_id, connection_id, gateway_charge_id) = 0
                AND kind IN ('payment', 'refund') AND (method IS NOT NULL) = (kind = 'payment')
            ELSE false
        END
    )
);
CREATE UNIQUE INDEX payment_entry_reference_once ON payment_entry (account_id, reference, connection_id, kind)
    WHERE source = 'gateway';
CREATE INDEX payment_entry_by_invoice ON payment_entry (account_id, invoice_id);
CREATE INDEX payment_entry_by_reference ON payment_entry (account_id, reference_key) WHERE reference_key IS NOT NULL;
CREATE TRIGGER payment_entry_kept BEFORE UPDATE OR DELETE ON payment_entry
    FOR EACH ROW EXECUTE FUNCTION keep_unless_erased('reference', 'reference_key', 'note');

-- Requests to a provider about a charge, with the provider's answers (D-267). `sealed` has the texts, encrypted. `sent_at`
-- is on the account's clock, `stored_at` is real time. The newest 50 calls of a charge are kept. An erasure of the
-- customer deletes them.
CREATE TABLE provider_call (
    account_id uuid NOT NULL,
    call_id uuid NOT NULL,
    charge_id uuid NOT NULL,
    operation text NOT NULL,
    sent_at timestamptz NOT NULL,
    duration_ms integer NOT NULL,
    status integer,
    sealed bytea NOT NULL,
    stored_at timestamptz NOT NULL,
    CONSTRAINT provider_call_pk PRIMARY KEY (account_id, call_id),
    CONSTRAINT provider_call_charge_fk FOREIGN KEY (account_id, charge_id)
        REFERENCES charge (account_id, charge_id),
    CONSTRAINT provider_call_operation CHECK (operation IN ('create', 'find', 'read', 'cancel', 'refund')),
    CONSTRAINT provider_call_duration CHECK (duration_ms >= 0)
);
CREATE INDEX provider_call_by_charge ON provider_call (account_id, charge_id, sent_at);
CREATE INDEX provider_call_by_time ON provider_call (account_id, stored_at);

-- The schedule of late look-ups for a charge that may still appear or be paid at the gateway. `connection_id` is that of
-- the charge. `unread_ids` has the gateway's ids of the charges that the look-ups could not read; for each of them,
-- `unread_since` has the time since when, or null if an event has reported the charge.
CREATE TABLE late_charge_check (
    account_id uuid NOT NULL,
    charge_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    checks_made integer NOT NULL DEFAULT 0,
    next_check_at timestamptz,
    incomplete_since timestamptz,
    unread_ids text[] NOT NULL DEFAULT '{}',
    unread_since timestamptz[] NOT NULL DEFAULT '{}',
    CONSTRAINT late_charge_check_pk PRIMARY KEY (account_id, charge_id),
    CONSTRAINT late_charge_check_charge_fk FOREIGN KEY (account_id, charge_id)
        REFERENCES charge (account_id, charge_id),
    CONSTRAINT late_charge_check_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT late_charge_check_unread CHECK (cardinality(unread_ids) = cardinality(unread_since))
);
CREATE INDEX late_charge_check_due ON late_charge_check (account_id, next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX late_charge_check_of_connection ON late_charge_check (account_id, connection_id, next_check_at)
    WHERE next_check_at IS NOT NULL;
CREATE INDEX late_charge_check_by_time ON late_charge_check (next_check_at) WHERE next_check_at > '-infinity';

-- A request of a merchant that waits until the gateway has canceled the invoice's charge: a reissue, a manual payment,
-- or a cancellation of the invoice. A poll that finds the charge canceled applies the request with the highest number.
-- `request_id` is the id that the next charge or the ledger entry will have. With `at_most_open`, the recorded payment
-- is at most the amount that is then open. `requested_at` (account's clock) is when the cancellation was requested.
-- `in_progress_until` is real time. `asked_by` is JSON for the audit entry.
CREATE TABLE merchant_request (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    charge_id uuid NOT NULL,
    request_id uuid NOT NULL,
    number integer NOT NULL,
    requested_at timestamptz NOT NULL,
    in_progress_until timestamptz NOT NULL,
    payment_method text,
    installments smallint,
    due_date date,
    amount_cents bigint,
    at_most_open boolean,
    occurred_at timestamptz,
    method text,
    reference text,
    note text,
    asked_by text NOT NULL,
    CONSTRAINT merchant_request_pk PRIMARY KEY (account_id, request_id),
    CONSTRAINT merchant_request_number UNIQUE (account_id, invoice_id, number),
    CONSTRAINT merchant_request_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT merchant_request_charge_fk FOREIGN KEY (account_id, charge_id)
        REFERENCES charge (account_id, charge_id),
    CONSTRAINT merchant_request_kind CHECK (payment_method IS NULL OR amount_cents IS NULL),
    CONSTRAINT merchant_request_terms CHECK (
        (payment_method IS NULL) = (due_date IS NULL) AND payment_method IN ('card', 'pix', 'boleto')
    ),
    CONSTRAINT merchant_request_installments CHECK (
        installments IS NULL OR (payment_method = 'card' AND installments BETWEEN 2 AND 12)
    ),
    CONSTRAINT merchant_request_amount CHECK (
        amount_cents > 0 AND num_nulls(amount_cents, at_most_open, occurred_at, method) IN (0, 4)
    ),
    CONSTRAINT merchant_request_method CHECK (method IN ('cash', 'transfer', 'pix', 'card', 'check', 'other'))
);

-- A refund that a merchant asked for, committed before its request is sent. An invoice has at most one open refund.
-- `left_cents` is what could be refunded when the row was inserted; a higher refund is refused. A refund of manual
-- payments has no connection and is inserted as `done`. `next_attempt_at` (account's clock) is when an open refund is
-- due to be sent or looked up, or when a failed refund is due for a late look-up. `lease_until` (real time) is when the
-- lease for this work ends. `erased` is set if the customer is erased. Then the row keeps no text of the merchant or
-- the gateway, even if a later answer brings one.
CREATE TABLE refund_request (
    account_id uuid NOT NULL,
    refund_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    charge_id uuid,
    connection_id uuid,
    gateway_charge_id text,
    stage text NOT NULL,
    amount_cents bigint NOT NULL,
    left_cents bigint NOT NULL,
    currency text NOT NULL,
    reason text,
    created_at timestamptz NOT NULL,
    next_attempt_at timestamptz,
    lease_until timestamptz,
    failures integer NOT NULL DEFAULT 0,
    sent_at timestamptz,
    unknown_since timestamptz,
    empty_lookups integer NOT NULL DEFAULT 0,
    looked_up_at timestamptz,
    closed_at timestamptz,
    payment_entry_id uuid,
    error_code text,
    error_detail text,
    erased boolean NOT NULL DEFAULT false,
    CONSTRAINT refund_request_pk PRIMARY KEY (account_id, refund_id),
    CONSTRAINT refund_request_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT refund_request_charge_fk FOREIGN KEY (account_id, charge_id)
        REFERENCES charge (account_id, charge_id),
    CONSTRAINT refund_request_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT refund_request_entry_fk FOREIGN KEY (account_id, payment_entry_id)
        REFERENCES payment_entry (account_id, payment_entry_id),
    CONSTRAINT refund_request_stage CHECK (
        CASE stage
            WHEN 'planned' THEN true
            WHEN 'sending' THEN sent_at IS NOT NULL
            WHEN 'accepted' THEN sent_at IS NOT NULL
            WHEN 'done' THEN payment_entry_id IS NOT NULL
            WHEN 'failed' THEN error_code IS NOT NULL
            ELSE false
        END
    ),
    CONSTRAINT refund_request_closed CHECK (
        (stage IN ('done', 'failed')) = (closed_at IS NOT NULL)
        AND (closed_at IS NOT NULL OR next_attempt_at IS NOT NULL)
        AND (stage <> 'done' OR next_attempt_at IS NULL)
        AND (next_attempt_at IS NOT NULL OR lease_until IS NULL)
        AND (payment_entry_id IS NULL OR stage = 'done')
        AND (error_code IS NULL) = (error_detail IS NULL)
    ),
    CONSTRAINT refund_request_amount CHECK (amount_cents > 0 AND amount_cents <= left_cents),
    CONSTRAINT refund_request_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT refund_request_source CHECK (
        (connection_id IS NULL) = (gateway_charge_id IS NULL)
        AND (connection_id IS NOT NULL OR (charge_id IS NULL AND stage = 'done'))
    )
);
CREATE UNIQUE INDEX refund_request_one_open ON refund_request (account_id, invoice_id)
    WHERE stage IN ('planned', 'sending', 'accepted');
CREATE UNIQUE INDEX refund_request_entry_once ON refund_request (account_id, payment_entry_id)
    WHERE payment_entry_id IS NOT NULL;
CREATE INDEX refund_request_by_invoice ON refund_request (account_id, invoice_id);
CREATE INDEX refund_request_due ON refund_request (account_id, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX refund_request_by_time ON refund_request (next_attempt_at) WHERE next_attempt_at > '-infinity';

-- A test checks that the pairs of stages below are those of `fatura.domain.refunds`.
CREATE FUNCTION refuse_illegal_refund() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.stage <> OLD.stage AND (OLD.stage || ' ' || NEW.stage) NOT IN (
        'planned sending', 'planned accepted', 'planned done', 'planned failed',
        'sending planned', 'sending accepted', 'sending done', 'sending failed',
        'accepted done', 'accepted failed',
        'failed done'
    ) THEN
        RAISE EXCEPTION 'a refund cannot move from % to %', OLD.stage, NEW.stage
            USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_request_move';
    END IF;
    IF (NEW.account_id, NEW.refund_id, NEW.invoice_id, NEW.amount_cents, NEW.left_cents, NEW.currency, NEW.created_at)
        IS DISTINCT FROM
       (OLD.account_id, OLD.refund_id, OLD.invoice_id, OLD.amount_cents, OLD.left_cents, OLD.currency, OLD.created_at)
        OR (NEW.charge_id, NEW.connection_id, NEW.gateway_charge_id, NEW.reason)
            IS DISTINCT FROM (OLD.charge_id, OLD.connection_id, OLD.gateway_charge_id, OLD.reason)
        OR (OLD.erased AND NOT NEW.erased)
        OR (OLD.stage = 'done' AND (NEW.closed_at, NEW.payment_entry_id)
            IS DISTINCT FROM (OLD.closed_at, OLD.payment_entry_id))
    THEN
        RAISE EXCEPTION 'a settled fact of a refund cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_request_frozen';
    END IF;
    IF NEW.erased THEN
        IF NEW.reason IS NOT NULL THEN
            NEW.reason := '[erased]';
        END IF;
        IF NEW.error_detail IS NOT NULL THEN
            NEW.error_detail := '[erased]';
        END IF;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refund_request_moves BEFORE UPDATE ON refund_request
    FOR EACH ROW EXECUTE FUNCTION refuse_illegal_refund();
CREATE TRIGGER refund_request_kept BEFORE DELETE ON refund_request
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- The nightly sweep, which compares a connection's charges with the provider's list (D-161). `next_sweep_at` (account's
-- clock) is when the next sweep begins, or when the running sweep continues. `lease_until` is real time. `swept_to` is
-- when the newest complete sweep began. `started_at` is when the running sweep began. The running sweep has compared
-- the listed charges that were created before `listed_to`. It has then looked in the list for the stored charges with
-- ids up to `checked_to`.
CREATE TABLE connection_sweep (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    next_sweep_at timestamptz NOT NULL,
    lease_until timestamptz,
    swept_to timestamptz NOT NULL,
    started_at timestamptz,
    listed_to timestamptz,
    checked_to uuid,
    CONSTRAINT connection_sweep_pk PRIMARY KEY (account_id, connection_id),
    CONSTRAINT connection_sweep_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT connection_sweep_progress CHECK (
        (started_at IS NULL) = (listed_to IS NULL) AND (checked_to IS NULL OR started_at IS NOT NULL)
        AND (started_at IS NULL OR started_at >= swept_to)
    )
) WITH (fillfactor = 70);
CREATE INDEX connection_sweep_by_time ON connection_sweep (next_sweep_at) WHERE next_sweep_at > '-infinity';

-- Rounds, which poll all unpaid charges of a connection because a webhook named none (D-190). `next_step_at` (account's
-- clock) is when the next round begins, or when the running round continues. `began_at` is when the newest round began.
-- The running round has visited the invoices with ids up to `done_to`. `again` is true if another round was requested
-- while this one ran. `made_due` is how many invoices the newest round has made due.
CREATE TABLE poll_round (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    next_step_at timestamptz,
    began_at timestamptz,
    done_to uuid,
    again boolean NOT NULL DEFAULT false,
    made_due integer NOT NULL DEFAULT 0,
    CONSTRAINT poll_round_pk PRIMARY KEY (account_id, connection_id),
    CONSTRAINT poll_round_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT poll_round_running CHECK (
        made_due >= 0 AND (done_to IS NULL OR num_nonnulls(next_step_at, began_at) = 2)
        AND (done_to IS NOT NULL OR NOT again)
    )
) WITH (fillfactor = 70);
CREATE INDEX poll_round_by_time ON poll_round (next_step_at) WHERE next_step_at > '-infinity';

-- Authentic webhooks that took effect, so that a copy has none. `digest` is the SHA-256 of the provider's id of the event
-- and of the charges that the webhook names. `received_at` is real time. A webhook without an id has no row.
CREATE TABLE gateway_webhook (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    digest bytea NOT NULL,
    received_at timestamptz NOT NULL,
    CONSTRAINT gateway_webhook_pk PRIMARY KEY (account_id, connection_id, digest),
    CONSTRAINT gateway_webhook_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT gateway_webhook_digest CHECK (octet_length(digest) = 32)
);
CREATE INDEX gateway_webhook_by_time ON gateway_webhook (account_id, received_at);

-- A charge at a gateway that is not stored in `charge`, or that is a second charge of its invoice. `next_look_at`
-- (account's clock) is when the engine next reads the charge from the gateway. `only_webhook` is true if nothing but
-- webhooks named the charge. `unanswered_looks` counts the looks at the charge that the gateway did not answer.
-- `state` is the state in which the newest look found the charge, or in which `invoice.issue_failed` reported it. If
-- this event reported a wrong amount, `state` is `parked`. `paid_at` is the instant of the newest recorded payment.
CREATE TABLE unmatched_charge (
    account_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    gateway_charge_id text NOT NULL,
    found_at timestamptz NOT NULL,
    next_look_at timestamptz,
    state text,
    paid_at timestamptz,
    unanswered_looks integer NOT NULL DEFAULT 0,
    unknown_since timestamptz,
    only_webhook boolean NOT NULL DEFAULT false,
    CONSTRAINT unmatched_charge_pk PRIMARY KEY (account_id, connection_id, gateway_charge_id),
    CONSTRAINT unmatched_charge_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT unmatched_charge_state CHECK (state IN ('parked', 'open', 'paid', 'refused', 'expired', 'canceled')),
    CONSTRAINT unmatched_charge_looked CHECK (state IS NOT NULL OR (next_look_at IS NOT NULL AND paid_at IS NULL))
);
CREATE INDEX unmatched_charge_due ON unmatched_charge (account_id, connection_id, next_look_at)
    WHERE next_look_at IS NOT NULL;
CREATE INDEX unmatched_charge_by_time ON unmatched_charge (next_look_at) WHERE next_look_at > '-infinity';
