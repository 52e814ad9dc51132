"""Scenarios of webhooks."""
