"""Scenarios of pricing."""
