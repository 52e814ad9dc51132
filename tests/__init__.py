"""Most tests run the real engine on a real PostgreSQL. The tests in `unit` and `tidy` need no database."""
