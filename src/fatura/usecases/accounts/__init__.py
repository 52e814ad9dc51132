"""Open, show and suspend accounts; manage API keys; authenticate requests; rotate and re-encrypt secrets.

Entry points: the functions of `accounts`, `api_keys`, `overview`, `suspension`, `key_ring` and `tag_key`, and `rotate`
and `signing_secrets` of `integration_secret`.
"""
