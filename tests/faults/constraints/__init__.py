"""Violate every index, key, check, trigger and policy with hand-written rows."""
