"""Open accounts, manage and authenticate API keys, rotate the integration secret, re-encrypt with a new key.

Entry points: the functions of `accounts`; `integration_secret.rotate` and `signing_secrets`; `key_ring.usage` and
`reencrypt`.
"""
