"""Scenarios of issuing, polling, paying and canceling charges."""
