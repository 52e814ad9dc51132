"""The PostgreSQL store: explicit SQL, one function per statement. Every statement of a `Tx` names the account."""
