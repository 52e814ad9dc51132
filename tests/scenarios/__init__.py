"""Scenario tests: the whole engine with a settable clock, one package per capability."""
