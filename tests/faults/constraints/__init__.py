"""Violate every index, key, check, trigger and policy by hand-written rows."""
