"""Scenarios of accounts."""
