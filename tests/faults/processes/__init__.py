"""Tests that kill or freeze processes of the engine while they do one kind of work."""
