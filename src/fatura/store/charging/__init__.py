"""Charge attempts, poll schedules and gateway connections."""
