-- no transaction
-- Customers are a list of their own (D-15), and lists take filters (D-16). The file can be run again after a failure.

-- As in a file of one transaction: a longer wait for the lock would hold up everybody else.
SET lock_timeout = '1s';
ALTER TABLE account_counter ADD COLUMN IF NOT EXISTS customers bigint NOT NULL DEFAULT 0;
ALTER TABLE account_counter DROP CONSTRAINT IF EXISTS account_counter_customers;
ALTER TABLE account_counter ADD CONSTRAINT account_counter_customers CHECK (customers >= 0);
RESET lock_timeout;

-- Who has customers already: account by account, since Row Level Security binds the tables' owner, too.
DO $$
DECLARE
    one uuid;
BEGIN
    SET LOCAL app.discover = 'on';
    FOR one IN SELECT a.account_id FROM account a LOOP
        EXECUTE format('SET LOCAL app.account = %L', one);
        UPDATE account_counter c
        SET customers = (SELECT count(*) FROM customer x WHERE x.account_id = one)
        WHERE c.account_id = one;
    END LOOP;
END
$$;

-- What filters ask for. Among 100,000 subscriptions and a million invoices these turn 6 ms and 70 ms into less than one
-- and two, for 1 to 6 microseconds a row written. A state of subscriptions needs none (they are few, and counted), nor
-- do a subscription's and a customer's invoices, nor what is archived.
DROP INDEX CONCURRENTLY IF EXISTS product_by_ref;
CREATE INDEX CONCURRENTLY product_by_ref ON product (account_id, external_ref) WHERE external_ref IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS subscription_by_ref;
CREATE INDEX CONCURRENTLY subscription_by_ref ON subscription (account_id, external_ref)
    WHERE external_ref IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS subscription_of_plan;
CREATE INDEX CONCURRENTLY subscription_of_plan ON subscription (account_id, plan_id, subscription_id);
-- With the state and the id in it, both the count and the order come from the index alone.
DROP INDEX CONCURRENTLY IF EXISTS invoice_by_due_date;
CREATE INDEX CONCURRENTLY invoice_by_due_date ON invoice (account_id, due_date, status, invoice_id);
