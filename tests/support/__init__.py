"""The world of a test, builders of test data, and doubles of servers outside the engine."""
