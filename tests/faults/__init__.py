"""Runs that inject faults into the engine and check its guarantees, repeatable by seed."""
