"""Every call to a merchant: the guarded client, and what is called through it."""
