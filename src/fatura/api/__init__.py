"""The HTTP surface: names, formats and status codes that a client sees, no rules."""
