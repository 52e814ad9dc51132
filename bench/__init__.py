"""Measured ratios: each side by side in one run on one machine. Never timed tests."""
