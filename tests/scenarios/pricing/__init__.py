"""Scenario tests of price calls and held invoices."""
