"""Measured ratios: both sides in one run on one machine. Never timed tests."""
