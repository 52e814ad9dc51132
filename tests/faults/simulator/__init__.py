"""Simulate the whole engine under faults that a seed determines."""
