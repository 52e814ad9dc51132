"""`fatura gateway`: manage an account's gateway connections over the HTTP API. Entry point: `command.app`."""
