"""Restore backups that are older than some charges at the gateway, and check that the engine finds these charges."""
