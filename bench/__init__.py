"""Benchmarks. Each one measures two sides in the same run on the same machine, and reports their ratio."""
