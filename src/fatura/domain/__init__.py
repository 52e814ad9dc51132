"""The rules of billing as pure functions and types: no clock, no randomness, no I/O."""
