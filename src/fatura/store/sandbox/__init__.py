"""The test clock of sandbox accounts."""
