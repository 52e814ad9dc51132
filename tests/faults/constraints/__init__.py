"""Try to violate every unique index, foreign key, check, trigger and policy of the database."""
