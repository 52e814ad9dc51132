"""Benchmarks. Most of them measure the engine and a rival in alternating rounds, and report the ratios."""
