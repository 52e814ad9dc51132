"""Scenarios of charging."""
