"""Scenarios of catalog."""
