"""Run two concurrent operations in many interleavings, one statement at a time."""
