"""Scenario tests of billing runs, invoices and their cancellation."""
