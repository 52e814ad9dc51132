"""Scenario tests of the pay page."""
