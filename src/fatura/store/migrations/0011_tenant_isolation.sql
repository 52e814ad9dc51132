-- Row Level Security: a transaction reads and writes only the rows of the account that `app.account` names.
-- While `app.discover` is on, a transaction may also read the rows of all accounts in some tables, to find due work.
-- PostgreSQL evaluates a sub-select once per statement, but a plain expression once per row. So the policies use
-- sub-selects. Citus accepts only plain expressions, so `fatura migrate --distribute` replaces the policies (ADR 0014).
-- The condition for discovery ends in IS NOT NULL, because the planner expects that most rows satisfy IS NOT NULL. With
-- `= 'on'` alone, it would expect few rows, and would sort all rows of an account to read one page.

DO $$
DECLARE
    account CONSTANT text := 'account_id = (SELECT nullif(current_setting(''app.account'', true), '''')::uuid)';
    discovery CONSTANT text := '(SELECT nullif(current_setting(''app.discover'', true) = ''on'', false)) IS NOT NULL';
    discovered CONSTANT text[] := ARRAY[
        'account', 'account_counter', 'connection_health', 'connection_move', 'connection_sweep', 'delivery',
        'erasure', 'idempotency_key', 'invoice', 'late_charge_check', 'poll_round', 'price_pull', 'pricing_attempt',
        'product_mirror', 'propagation', 'refund_request', 'retention', 'subscription', 'test_clock', 'unmatched_charge',
        'webhook'
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
