"""SQL for events, their deliveries and the account's webhook."""
