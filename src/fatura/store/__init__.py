"""SQL for PostgreSQL, in small functions. In each statement of a `Tx`, `$1` is the account's id."""
