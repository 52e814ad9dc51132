"""The sandbox gateway: an adapter with its own storage."""
