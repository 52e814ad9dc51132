-- The last walls: the invoice's legal moves, what may never change, and Row Level Security.

-- The pairs are those of fatura.domain.invoice_states; a test holds the two together.
CREATE FUNCTION refuse_illegal_invoice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status NOT IN ('draft', 'ready', 'paid') OR NEW.gateway_invoice_id IS NOT NULL THEN
            RAISE EXCEPTION 'an invoice cannot be born %', NEW.status
                USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_birth';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status AND (OLD.status || ' ' || NEW.status) NOT IN (
        'draft awaiting_value', 'draft ready', 'draft paid', 'draft canceled',
        'awaiting_value ready', 'awaiting_value paid', 'awaiting_value canceled',
        'ready issued', 'ready canceled',
        'issued paid', 'issued overdue', 'issued canceled',
        'overdue paid', 'overdue canceled'
    ) THEN
        RAISE EXCEPTION 'an invoice cannot move from % to %', OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_move';
    END IF;
    IF (NEW.account_id, NEW.invoice_id, NEW.subscription_id, NEW.connection_id, NEW.cycle, NEW.period_start,
        NEW.period_end, NEW.due_date, NEW.payment_method, NEW.created_at)
        IS DISTINCT FROM
       (OLD.account_id, OLD.invoice_id, OLD.subscription_id, OLD.connection_id, OLD.cycle, OLD.period_start,
        OLD.period_end, OLD.due_date, OLD.payment_method, OLD.created_at)
        OR NEW.installments IS DISTINCT FROM OLD.installments
        OR (OLD.total_cents IS NOT NULL AND NEW.total_cents IS DISTINCT FROM OLD.total_cents)
        OR (OLD.gateway_invoice_id IS NOT NULL AND NEW.gateway_invoice_id IS DISTINCT FROM OLD.gateway_invoice_id)
        OR (OLD.issued_at IS NOT NULL AND NEW.issued_at IS DISTINCT FROM OLD.issued_at)
        OR (OLD.charge_due_date IS NOT NULL AND NEW.charge_due_date IS DISTINCT FROM OLD.charge_due_date)
        OR (OLD.paid_at IS NOT NULL AND NEW.paid_at IS DISTINCT FROM OLD.paid_at)
        OR (OLD.refunded_at IS NOT NULL AND NEW.refunded_at IS DISTINCT FROM OLD.refunded_at)
        OR (OLD.disputed_at IS NOT NULL AND NEW.disputed_at IS DISTINCT FROM OLD.disputed_at)
    THEN
        RAISE EXCEPTION 'a settled fact of an invoice cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER invoice_moves BEFORE INSERT OR UPDATE ON invoice
    FOR EACH ROW EXECUTE FUNCTION refuse_illegal_invoice();

CREATE FUNCTION refuse_change_to_closed_item() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.pricing_status <> 'pending' OR (NEW.account_id, NEW.invoice_id, NEW.position, NEW.item_id, NEW.product_id,
        NEW.product_name, NEW.months) IS DISTINCT FROM (OLD.account_id, OLD.invoice_id, OLD.position, OLD.item_id,
        OLD.product_id, OLD.product_name, OLD.months)
    THEN
        RAISE EXCEPTION 'a closed or frozen part of an invoice item cannot change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_item_frozen';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER invoice_item_frozen BEFORE UPDATE ON invoice_item
    FOR EACH ROW EXECUTE FUNCTION refuse_change_to_closed_item();

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

CREATE FUNCTION refuse_any_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows are kept as they are', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = 'row_kept';
END
$$;
CREATE TRIGGER event_kept BEFORE UPDATE OR DELETE ON event FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER plan_version_kept BEFORE UPDATE OR DELETE ON plan_version
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER plan_item_kept BEFORE UPDATE OR DELETE ON plan_item
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER plan_discount_kept BEFORE UPDATE OR DELETE ON plan_discount
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER invoice_kept BEFORE DELETE ON invoice FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER invoice_item_kept BEFORE DELETE ON invoice_item FOR EACH ROW EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER charge_attempt_kept BEFORE DELETE ON charge_attempt
    FOR EACH ROW EXECUTE FUNCTION refuse_any_change();

-- A query that forgets to say whose rows it means sees none (`app.account` is set in every transaction).
ALTER TABLE account ENABLE ROW LEVEL SECURITY;
ALTER TABLE account FORCE ROW LEVEL SECURITY;
CREATE POLICY account_of_account ON account
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE account_counter ENABLE ROW LEVEL SECURITY;
ALTER TABLE account_counter FORCE ROW LEVEL SECURITY;
CREATE POLICY account_counter_of_account ON account_counter
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE api_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_key FORCE ROW LEVEL SECURITY;
CREATE POLICY api_key_of_account ON api_key
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE integration_secret ENABLE ROW LEVEL SECURITY;
ALTER TABLE integration_secret FORCE ROW LEVEL SECURITY;
CREATE POLICY integration_secret_of_account ON integration_secret
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE idempotency_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency_key FORCE ROW LEVEL SECURITY;
CREATE POLICY idempotency_key_of_account ON idempotency_key
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE product ENABLE ROW LEVEL SECURITY;
ALTER TABLE product FORCE ROW LEVEL SECURITY;
CREATE POLICY product_of_account ON product
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE plan ENABLE ROW LEVEL SECURITY;
ALTER TABLE plan FORCE ROW LEVEL SECURITY;
CREATE POLICY plan_of_account ON plan
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE plan_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE plan_version FORCE ROW LEVEL SECURITY;
CREATE POLICY plan_version_of_account ON plan_version
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE plan_item ENABLE ROW LEVEL SECURITY;
ALTER TABLE plan_item FORCE ROW LEVEL SECURITY;
CREATE POLICY plan_item_of_account ON plan_item
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE plan_discount ENABLE ROW LEVEL SECURITY;
ALTER TABLE plan_discount FORCE ROW LEVEL SECURITY;
CREATE POLICY plan_discount_of_account ON plan_discount
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE customer ENABLE ROW LEVEL SECURITY;
ALTER TABLE customer FORCE ROW LEVEL SECURITY;
CREATE POLICY customer_of_account ON customer
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE gateway_connection ENABLE ROW LEVEL SECURITY;
ALTER TABLE gateway_connection FORCE ROW LEVEL SECURITY;
CREATE POLICY gateway_connection_of_account ON gateway_connection
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE subscription ENABLE ROW LEVEL SECURITY;
ALTER TABLE subscription FORCE ROW LEVEL SECURITY;
CREATE POLICY subscription_of_account ON subscription
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE product_mirror ENABLE ROW LEVEL SECURITY;
ALTER TABLE product_mirror FORCE ROW LEVEL SECURITY;
CREATE POLICY product_mirror_of_account ON product_mirror
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE invoice ENABLE ROW LEVEL SECURITY;
ALTER TABLE invoice FORCE ROW LEVEL SECURITY;
CREATE POLICY invoice_of_account ON invoice
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE invoice_item ENABLE ROW LEVEL SECURITY;
ALTER TABLE invoice_item FORCE ROW LEVEL SECURITY;
CREATE POLICY invoice_item_of_account ON invoice_item
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE charge_attempt ENABLE ROW LEVEL SECURITY;
ALTER TABLE charge_attempt FORCE ROW LEVEL SECURITY;
CREATE POLICY charge_attempt_of_account ON charge_attempt
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE event ENABLE ROW LEVEL SECURITY;
ALTER TABLE event FORCE ROW LEVEL SECURITY;
CREATE POLICY event_of_account ON event
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE test_clock ENABLE ROW LEVEL SECURITY;
ALTER TABLE test_clock FORCE ROW LEVEL SECURITY;
CREATE POLICY test_clock_of_account ON test_clock
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE sandbox_charge ENABLE ROW LEVEL SECURITY;
ALTER TABLE sandbox_charge FORCE ROW LEVEL SECURITY;
CREATE POLICY sandbox_charge_of_account ON sandbox_charge
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE sandbox_product ENABLE ROW LEVEL SECURITY;
ALTER TABLE sandbox_product FORCE ROW LEVEL SECURITY;
CREATE POLICY sandbox_product_of_account ON sandbox_product
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);
ALTER TABLE sandbox_fault ENABLE ROW LEVEL SECURITY;
ALTER TABLE sandbox_fault FORCE ROW LEVEL SECURITY;
CREATE POLICY sandbox_fault_of_account ON sandbox_fault
    USING (account_id = nullif(current_setting('app.account', true), '')::uuid);

-- Finding out which accounts have due work reads these over all accounts, and only reads.
CREATE POLICY account_discovered ON account FOR SELECT USING (current_setting('app.discover', true) = 'on');
CREATE POLICY subscription_discovered ON subscription FOR SELECT USING (current_setting('app.discover', true) = 'on');
CREATE POLICY invoice_discovered ON invoice FOR SELECT USING (current_setting('app.discover', true) = 'on');
CREATE POLICY product_mirror_discovered ON product_mirror FOR SELECT USING (current_setting('app.discover', true) = 'on');
CREATE POLICY test_clock_discovered ON test_clock FOR SELECT USING (current_setting('app.discover', true) = 'on');
CREATE POLICY idempotency_key_discovered ON idempotency_key FOR SELECT USING (current_setting('app.discover', true) = 'on');
