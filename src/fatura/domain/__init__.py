"""Rules that are true without clock, network or database. Pure: nothing here does I/O."""
