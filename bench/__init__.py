"""Benchmarks. Each one compares two measurements from the same run on the same machine, and reports their ratio."""
