"""SQL for the test clock of sandbox accounts."""
