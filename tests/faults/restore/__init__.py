"""Restore backups that are older than the gateway."""
