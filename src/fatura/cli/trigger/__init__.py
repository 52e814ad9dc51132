"""`fatura trigger`: make an event happen in a sandbox account. Entry point: `command.trigger`."""
