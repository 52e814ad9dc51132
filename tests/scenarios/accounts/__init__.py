"""Scenario tests of an account's secrets, its suspension, and erasures by an operator."""
