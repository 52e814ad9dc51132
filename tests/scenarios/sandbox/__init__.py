"""Scenarios of sandbox."""
