"""Simulate the whole engine under faults. A seed determines the faults and the order of all I/O."""
