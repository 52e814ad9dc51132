"""Scenarios of restore."""
