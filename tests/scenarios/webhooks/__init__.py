"""Scenario tests of the event stream and of webhook deliveries."""
