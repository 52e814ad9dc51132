"""Proof by faults: the engine killed, raced against itself and lied to, in runs that are seeded and repeatable."""
