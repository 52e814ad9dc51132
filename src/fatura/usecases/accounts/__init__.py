"""Open accounts, create API keys, rotate the integration secret and re-encrypt with a new key ring."""
