"""Frozen accounts, and the charges that a restore found at the gateways."""
