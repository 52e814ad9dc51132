"""The sandbox gateway, a simulated provider with its own tables (D-44, D-46)."""
