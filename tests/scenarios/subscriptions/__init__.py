"""Scenarios of subscriptions."""
