"""Scenario tests of subscriptions and their customers."""
