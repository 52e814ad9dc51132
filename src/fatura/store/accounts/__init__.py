"""Accounts, their API keys and integration secrets."""
