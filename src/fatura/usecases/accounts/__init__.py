"""Open accounts, authenticate and manage API keys, rotate the integration secret, and reseal with a new key ring.

Doors: the functions of `accounts`, `integration_secret.rotate` and `signing_secrets`, `key_ring.usage` and `reseal`.
"""
