"""Scenario tests of an account's secrets."""
