"""Subscriptions and customers."""
