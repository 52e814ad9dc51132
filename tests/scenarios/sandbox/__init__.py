"""Scenario tests of the sandbox gateway and the test clock."""
