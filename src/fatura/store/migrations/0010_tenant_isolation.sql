-- Row Level Security: a transaction reads and writes only the rows of the account that `app.account` names.
-- Some tables can also be read over all accounts while `app.discover` is on, to find accounts with due work.
-- A sub-select is evaluated once per statement, an expression once per row. Citus accepts expressions only, so
-- `fatura migrate --distribute` replaces these policies (ADR 0014). The planner expects IS NOT NULL to keep most rows. It
-- would expect `= 'on'` to remove most, and then sort all rows of an account for one page.

DO $$
DECLARE
    account CONSTANT text := 'account_id = (SELECT nullif(current_setting(''app.account'', true), '''')::uuid)';
    discovery CONSTANT text := '(SELECT nullif(current_setting(''app.discover'', true) = ''on'', false)) IS NOT NULL';
    discovered CONSTANT text[] := ARRAY[
        'account', 'account_counter', 'delivery', 'idempotency_key', 'invoice', 'late_charge_check', 'price_pull',
        'pricing_attempt', 'product_mirror', 'subscription', 'test_clock', 'webhook'
    ];
    name text;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND a.attname = 'account_id'
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY %I ON %I USING (%s)', name || '_of_account', name, account);
        IF name = ANY (discovered) THEN
            EXECUTE format('CREATE POLICY %I ON %I FOR SELECT USING (%s)', name || '_discovered', name, discovery);
        END IF;
    END LOOP;
END
$$;
