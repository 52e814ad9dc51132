"""Test the engine with gateways that lose responses, create charges late and show charges late."""
