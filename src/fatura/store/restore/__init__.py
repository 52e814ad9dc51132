"""SQL of a restore from a backup: frozen accounts, matching of charges, and invoices that the backup lacks (D-123)."""
