-- Asked of every row that a statement meets, and comparing as text takes half the time of reading the setting as a uuid each
-- time: where an account's page is skipped to or its rows are counted, that was four fifths of the work. Tables without
-- discovery need none of it: there the setting is compared once, with the statement's own account_id.

ALTER POLICY account_of_account ON account USING (account_id::text = current_setting('app.account', true));
ALTER POLICY account_counter_of_account ON account_counter USING (account_id::text = current_setting('app.account', true));
ALTER POLICY delivery_of_account ON delivery USING (account_id::text = current_setting('app.account', true));
ALTER POLICY idempotency_key_of_account ON idempotency_key USING (account_id::text = current_setting('app.account', true));
ALTER POLICY invoice_of_account ON invoice USING (account_id::text = current_setting('app.account', true));
ALTER POLICY price_pull_of_account ON price_pull USING (account_id::text = current_setting('app.account', true));
ALTER POLICY pricing_attempt_of_account ON pricing_attempt USING (account_id::text = current_setting('app.account', true));
ALTER POLICY product_mirror_of_account ON product_mirror USING (account_id::text = current_setting('app.account', true));
ALTER POLICY second_look_of_account ON second_look USING (account_id::text = current_setting('app.account', true));
ALTER POLICY subscription_of_account ON subscription USING (account_id::text = current_setting('app.account', true));
ALTER POLICY test_clock_of_account ON test_clock USING (account_id::text = current_setting('app.account', true));
ALTER POLICY webhook_of_account ON webhook USING (account_id::text = current_setting('app.account', true));
