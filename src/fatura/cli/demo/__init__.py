"""`fatura demo`: bill three months of twenty subscribers and show the result. Entry point: `command.demo`."""
