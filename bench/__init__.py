"""Benchmarks. Each compares two sides in the same run on the same machine, so the result is a ratio, not a time."""
