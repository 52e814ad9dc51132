"""The sandbox gateway: a provider simulated with tables of its own (D-44, D-46)."""
