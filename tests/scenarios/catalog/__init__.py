"""Scenario tests of product mirroring and plan propagation."""
