"""Scenarios of billing."""
