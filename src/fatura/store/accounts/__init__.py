"""SQL for accounts, their API keys and integration secrets."""
