"""Invoices: generated, read, and moved between states."""
