-- no transaction
-- Which open pushes wait behind another of their invoice, so that a look for what may be sent passes them by, however
-- many they are. The file can be run again after a failure.

-- True: an earlier one of the invoice is open. False: it may be sent, as far as is known. A closed one is null once
-- the next one was told that its turn has come. Null while open: nobody has looked (a row from before this column, or
-- opened again by a version that does not know it). It is a hint that spares reading: `store.webhooks.deliveries.due` itself makes
-- sure of the order. A version without the column writes false, which hides nothing, and closes without null, which is
-- found by `delivery_turn_kept` and put right; so both may run beside each other.
SET lock_timeout = '1s';
ALTER TABLE delivery ADD COLUMN IF NOT EXISTS waits boolean;
ALTER TABLE delivery ALTER COLUMN waits SET DEFAULT false;
RESET lock_timeout;

DROP INDEX CONCURRENTLY IF EXISTS delivery_ready;
CREATE INDEX CONCURRENTLY delivery_ready ON delivery (account_id, sequence, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL AND waits IS NOT TRUE;
DROP INDEX CONCURRENTLY IF EXISTS delivery_turn_kept;
CREATE INDEX CONCURRENTLY delivery_turn_kept ON delivery (account_id, sequence)
    WHERE next_attempt_at IS NULL AND waits IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS delivery_open;
