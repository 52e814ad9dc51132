"""Programs that call a running engine with a generated client. Each is copied to its client, checked and run."""
