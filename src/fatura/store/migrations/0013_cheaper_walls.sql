-- Both policies of these tables are asked of each row that a read meets, and comparing as text takes half the time of reading the
-- setting as a uuid (ADR 0013): where an account's page is skipped to or its rows are counted, that was most of the work. The
-- other tables have one policy, which a read compares once, with the statement's own account_id.
-- Written so that the planner does not take it for a filter, as in 0012; what everybody uses comes last, since it is locked.

ALTER POLICY delivery_of_account ON delivery
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY idempotency_key_of_account ON idempotency_key
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY price_pull_of_account ON price_pull
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY pricing_attempt_of_account ON pricing_attempt
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY product_mirror_of_account ON product_mirror
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY late_charge_check_of_account ON late_charge_check
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY test_clock_of_account ON test_clock
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY webhook_of_account ON webhook
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY subscription_of_account ON subscription
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY invoice_of_account ON invoice
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY account_counter_of_account ON account_counter
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
ALTER POLICY account_of_account ON account
    USING (CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen');
