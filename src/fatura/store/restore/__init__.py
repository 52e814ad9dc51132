"""SQL used after a restore from a backup: frozen accounts, matching of charges, and lost invoices (D-123)."""
