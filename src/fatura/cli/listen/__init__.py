"""`fatura listen`: forward an account's events to a local URL. Door: `command.listen`."""
