-- Invoices, their items, and the moves and changes that the database refuses.

-- `gateway_invoice_id`, `issued_at` and `charge_due_date` are those of the charge that was paid, else of the newest
-- charge that the gateway has confirmed.
-- `next_attempt_at` (account's clock) is when the next work on the invoice is due: its issuance while the status is
-- `ready`, later a poll of its charges. `lease_until` (real time) is when a worker's lease for this work ends.
-- `polls_first` is true while a poll is due because a gateway's webhook named one of the charges. A connection
-- alternates between these polls and all other polls. A poll that the connection's budget does not allow yet stays due.
-- `waits_for_connection` is set while the work is put off because the connection is failing or inactive.
-- `retry_paced_until` (real time) limits how often a person's request retries the issuance.
-- `pay_link_version` is how often the link of the invoice's pay page was replaced (ADR 0020).
CREATE TABLE invoice (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    plan_version_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    cycle integer NOT NULL,
    status text NOT NULL,
    period_start date NOT NULL,
    period_end date NOT NULL,
    due_date date NOT NULL,
    charge_due_date date,
    payment_method text NOT NULL,
    installments smallint,
    total_cents bigint,
    currency text NOT NULL,
    gateway_invoice_id text,
    issued_at timestamptz,
    paid_at timestamptz,
    refunded_at timestamptz,
    disputed_at timestamptz,
    canceled_at timestamptz,
    unexpected_payment_at timestamptz,
    created_at timestamptz NOT NULL,
    next_attempt_at timestamptz,
    lease_until timestamptz,
    polls_first boolean NOT NULL DEFAULT false,
    waits_for_connection boolean NOT NULL DEFAULT false,
    issue_failures integer NOT NULL DEFAULT 0,
    issue_failing_since timestamptz,
    issue_delay_emitted boolean NOT NULL DEFAULT false,
    issue_error_code text,
    issue_error_detail text,
    issue_error_at timestamptz,
    retry_paced_until timestamptz,
    pay_link_version bigint NOT NULL DEFAULT 0,
    CONSTRAINT invoice_pk PRIMARY KEY (account_id, invoice_id),
    CONSTRAINT invoice_one_per_cycle UNIQUE (account_id, subscription_id, cycle),
    CONSTRAINT invoice_subscription_fk FOREIGN KEY (account_id, subscription_id)
        REFERENCES subscription (account_id, subscription_id),
    CONSTRAINT invoice_version_fk FOREIGN KEY (account_id, plan_version_id)
        REFERENCES plan_version (account_id, plan_version_id),
    CONSTRAINT invoice_connection_fk FOREIGN KEY (account_id, connection_id)
        REFERENCES gateway_connection (account_id, connection_id),
    CONSTRAINT invoice_cycle CHECK (cycle >= 1),
    CONSTRAINT invoice_period CHECK (period_end >= period_start),
    CONSTRAINT invoice_method CHECK (payment_method IN ('card', 'pix', 'boleto')),
    CONSTRAINT invoice_installments CHECK (
        installments IS NULL OR (payment_method = 'card' AND installments BETWEEN 2 AND 12)
    ),
    CONSTRAINT invoice_status CHECK (
        status IN ('draft', 'awaiting_value', 'ready', 'issued', 'paid', 'overdue', 'canceled')
    ),
    CONSTRAINT invoice_total CHECK (
        CASE
            WHEN status IN ('draft', 'awaiting_value') THEN total_cents IS NULL
            WHEN status = 'canceled' THEN true
            WHEN status = 'paid' THEN total_cents >= 0
            ELSE total_cents > 0
        END IS TRUE
    ),
    CONSTRAINT invoice_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT invoice_charge CHECK (
        CASE
            WHEN status IN ('draft', 'awaiting_value') THEN gateway_invoice_id IS NULL
            WHEN status IN ('issued', 'overdue') THEN gateway_invoice_id IS NOT NULL
            WHEN status = 'paid' THEN gateway_invoice_id IS NULL OR total_cents > 0
            ELSE true
        END IS TRUE
    ),
    CONSTRAINT invoice_issued_at CHECK (
        (gateway_invoice_id IS NULL) = (issued_at IS NULL) AND (issued_at IS NULL) = (charge_due_date IS NULL)
    ),
    CONSTRAINT invoice_paid_at CHECK ((status = 'paid') = (paid_at IS NOT NULL)),
    CONSTRAINT invoice_canceled_at CHECK ((status = 'canceled') = (canceled_at IS NOT NULL)),
    CONSTRAINT invoice_issue_error CHECK (
        CASE
            WHEN issue_error_code IS NULL THEN issue_error_detail IS NULL AND issue_error_at IS NULL
            ELSE issue_error_detail IS NOT NULL AND issue_error_at IS NOT NULL
                AND status = 'ready' AND next_attempt_at IS NULL
        END
    ),
    CONSTRAINT invoice_pay_link_version CHECK (pay_link_version >= 0)
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX invoice_charge_once ON invoice (account_id, connection_id, gateway_invoice_id)
    WHERE gateway_invoice_id IS NOT NULL;
CREATE INDEX invoice_by_status ON invoice (account_id, status, invoice_id);
-- For a filter by due date, PostgreSQL counts and sorts the matching invoices from this index alone.
CREATE INDEX invoice_by_due_date ON invoice (account_id, due_date, status, invoice_id);
CREATE INDEX invoice_issuance ON invoice (account_id, next_attempt_at)
    WHERE status = 'ready' AND next_attempt_at IS NOT NULL;
-- A claim of polls skips each connection whose budget is used up. With this index, it need not read the connection's
-- due invoices.
CREATE INDEX invoice_polls ON invoice (account_id, connection_id, polls_first, next_attempt_at)
    WHERE status IN ('issued', 'overdue', 'paid', 'canceled') AND next_attempt_at IS NOT NULL;
CREATE INDEX invoice_issuance_by_time ON invoice (next_attempt_at)
    WHERE status = 'ready' AND next_attempt_at > '-infinity';
CREATE INDEX invoice_polls_by_time ON invoice (next_attempt_at)
    WHERE status IN ('issued', 'overdue', 'paid', 'canceled') AND next_attempt_at > '-infinity';
CREATE INDEX invoice_waiting ON invoice (account_id, connection_id, next_attempt_at) WHERE waits_for_connection;

CREATE TABLE invoice_item (
    account_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    position smallint NOT NULL,
    item_id uuid NOT NULL,
    product_id uuid NOT NULL,
    product_name text NOT NULL,
    pricing_source text NOT NULL,
    pricing_status text NOT NULL,
    months smallint NOT NULL,
    monthly_price_cents bigint,
    discount_percent smallint,
    amount_cents bigint,
    currency text NOT NULL,
    description text,
    CONSTRAINT invoice_item_pk PRIMARY KEY (account_id, invoice_id, position),
    CONSTRAINT invoice_item_invoice_fk FOREIGN KEY (account_id, invoice_id)
        REFERENCES invoice (account_id, invoice_id),
    CONSTRAINT invoice_item_product_fk FOREIGN KEY (account_id, product_id)
        REFERENCES product (account_id, product_id),
    CONSTRAINT invoice_item_source CHECK (pricing_source IN ('table', 'endpoint', 'manual')),
    CONSTRAINT invoice_item_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT invoice_item_status CHECK (
        CASE pricing_status
            WHEN 'priced' THEN amount_cents >= 0
            WHEN 'pending' THEN amount_cents IS NULL AND pricing_source = 'endpoint'
            WHEN 'skipped' THEN amount_cents IS NULL AND pricing_source = 'endpoint'
            ELSE false
        END IS TRUE
    ),
    CONSTRAINT invoice_item_table CHECK (
        CASE
            WHEN pricing_source = 'table' THEN
                amount_cents = (months * monthly_price_cents * (100 - coalesce(discount_percent, 0)) + 50) / 100
            ELSE monthly_price_cents IS NULL AND discount_percent IS NULL
        END IS TRUE
    )
);

-- A test checks that the pairs of statuses below are those of `fatura.domain.invoice_states`.
CREATE FUNCTION refuse_illegal_invoice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status NOT IN ('draft', 'ready', 'paid') OR NEW.gateway_invoice_id IS NOT NULL THEN
            RAISE EXCEPTION 'an invoice cannot be created as %', NEW.status
                USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_initial_state';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status AND (OLD.status || ' ' || NEW.status) NOT IN (
        'draft awaiting_value', 'draft ready', 'draft paid', 'draft canceled',
        'awaiting_value ready', 'awaiting_value paid', 'awaiting_value canceled',
        'ready issued', 'ready paid', 'ready canceled',
        'issued ready', 'issued paid', 'issued overdue', 'issued canceled',
        'overdue ready', 'overdue paid', 'overdue canceled'
    ) THEN
        RAISE EXCEPTION 'an invoice cannot move from % to %', OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_move';
    END IF;
    IF (NEW.account_id, NEW.invoice_id, NEW.subscription_id, NEW.plan_version_id, NEW.connection_id, NEW.cycle,
        NEW.period_start, NEW.period_end, NEW.due_date, NEW.payment_method, NEW.currency, NEW.created_at)
        IS DISTINCT FROM
       (OLD.account_id, OLD.invoice_id, OLD.subscription_id, OLD.plan_version_id, OLD.connection_id, OLD.cycle,
        OLD.period_start, OLD.period_end, OLD.due_date, OLD.payment_method, OLD.currency, OLD.created_at)
        OR NEW.installments IS DISTINCT FROM OLD.installments
        OR (OLD.total_cents IS NOT NULL AND NEW.total_cents IS DISTINCT FROM OLD.total_cents)
        OR (OLD.gateway_invoice_id IS NOT NULL AND NEW.gateway_invoice_id IS NULL)
        OR (
            OLD.gateway_invoice_id IS NOT NULL
            AND NOT (OLD.status = 'ready' AND NEW.status = 'issued')
            AND NOT (OLD.status <> 'paid' AND NEW.status = 'paid')
            AND (NEW.gateway_invoice_id, NEW.issued_at, NEW.charge_due_date)
                IS DISTINCT FROM (OLD.gateway_invoice_id, OLD.issued_at, OLD.charge_due_date)
        )
        OR (OLD.paid_at IS NOT NULL AND NEW.paid_at IS DISTINCT FROM OLD.paid_at)
        OR (OLD.refunded_at IS NOT NULL AND NEW.refunded_at IS DISTINCT FROM OLD.refunded_at)
        OR (OLD.disputed_at IS NOT NULL AND NEW.disputed_at <> OLD.disputed_at)
        OR (OLD.canceled_at IS NOT NULL AND NEW.canceled_at IS DISTINCT FROM OLD.canceled_at)
        OR (OLD.unexpected_payment_at IS NOT NULL
            AND NEW.unexpected_payment_at IS DISTINCT FROM OLD.unexpected_payment_at)
    THEN
        RAISE EXCEPTION 'a settled fact of an invoice cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER invoice_moves BEFORE INSERT OR UPDATE ON invoice
    FOR EACH ROW EXECUTE FUNCTION refuse_illegal_invoice();
CREATE TRIGGER invoice_kept BEFORE DELETE ON invoice FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

CREATE FUNCTION refuse_change_to_closed_item() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('app.erasure', true) = 'on'
        AND to_jsonb(NEW) - 'description' = to_jsonb(OLD) - 'description'
    THEN
        RETURN NEW;
    END IF;
    IF OLD.pricing_status <> 'pending' OR (NEW.account_id, NEW.invoice_id, NEW.position, NEW.item_id, NEW.product_id,
        NEW.product_name, NEW.months, NEW.currency) IS DISTINCT FROM (OLD.account_id, OLD.invoice_id, OLD.position,
        OLD.item_id, OLD.product_id, OLD.product_name, OLD.months, OLD.currency)
    THEN
        RAISE EXCEPTION 'a closed or frozen part of an invoice item cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_item_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER invoice_item_frozen BEFORE UPDATE ON invoice_item
    FOR EACH ROW EXECUTE FUNCTION refuse_change_to_closed_item();
CREATE TRIGGER invoice_item_kept BEFORE DELETE ON invoice_item FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
