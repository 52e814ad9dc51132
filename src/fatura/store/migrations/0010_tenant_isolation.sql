-- Row Level Security: a transaction reads and writes the rows of the account named by `app.account` only.
-- Some tables are also readable over all accounts while `app.discover` is on, to find accounts with due work.

DO $$
DECLARE
    discovered CONSTANT text[] := ARRAY[
        'account', 'account_counter', 'delivery', 'idempotency_key', 'invoice', 'price_pull', 'pricing_attempt',
        'product_mirror', 'late_charge_check', 'subscription', 'test_clock', 'webhook'
    ];
    name text;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND a.attname = 'account_id'
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        IF name = ANY (discovered) THEN
            EXECUTE format(
                'CREATE POLICY %I ON %I USING (CASE account_id::text WHEN current_setting(''app.account'', true) '
                'THEN ''seen'' END <> ''unseen'')', name || '_of_account', name
            );
            EXECUTE format(
                'CREATE POLICY %I ON %I FOR SELECT USING (CASE current_setting(''app.discover'', true) WHEN ''on'' '
                'THEN ''seen'' END <> ''unseen'')', name || '_discovered', name
            );
        ELSE
            EXECUTE format(
                'CREATE POLICY %I ON %I USING (account_id = nullif(current_setting(''app.account'', true), '''')::uuid)',
                name || '_of_account', name
            );
        END IF;
    END LOOP;
END
$$;
