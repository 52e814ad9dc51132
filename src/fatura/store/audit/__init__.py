"""SQL of the audit log (D-63)."""
