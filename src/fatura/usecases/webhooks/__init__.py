"""Deliver events to the merchant's webhook in order, and serve the replay stream."""
