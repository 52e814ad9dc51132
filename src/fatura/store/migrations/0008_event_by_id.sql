-- no transaction
-- Three routes find an event by its id (D-39). The stream may be long, and is written to meanwhile. The file can be run
-- again after a failure.
DROP INDEX CONCURRENTLY IF EXISTS event_id_once;
CREATE UNIQUE INDEX CONCURRENTLY event_id_once ON event (account_id, event_id);
