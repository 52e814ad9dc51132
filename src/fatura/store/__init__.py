"""PostgreSQL: explicit SQL, one function per statement, the account in every one."""
