"""Scenario tests of the audit log."""
