"""Shared test support: the `world` fixture's engine, builders of test data, and doubles of external servers."""
