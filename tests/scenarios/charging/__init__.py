"""Scenario tests of issuing, polling, paying and canceling charges."""
