"""Scenarios of a restore from a backup."""
