"""Open accounts, manage API keys, authenticate requests, rotate the integration secret, re-encrypt secrets.

Entry points: the functions of `accounts` and `api_keys`, `integration_secret.rotate`,
`integration_secret.signing_secrets`, `key_ring.usage` and `key_ring.reencrypt`.
"""
