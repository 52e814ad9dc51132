"""Simulate whole accounts under seeded faults."""
