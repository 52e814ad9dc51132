"""Checks of the adapters at the providers' own sandboxes, which need keys. `make live-gateways` runs them."""
