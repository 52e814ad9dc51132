"""Scenario tests of an account whose database was restored from a backup."""
