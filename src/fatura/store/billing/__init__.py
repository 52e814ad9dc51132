"""Statements that generate, read and move invoices."""
