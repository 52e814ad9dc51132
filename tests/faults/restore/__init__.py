"""Restore backups when the gateway has newer charges than the database."""
