"""`fatura listen`: forward an account's events to a local URL. Entry point: `command.listen`."""
