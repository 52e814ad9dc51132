"""Statements for subscriptions and customers."""
