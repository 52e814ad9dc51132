"""Step two concurrent operations through their interleavings, statement by statement."""
