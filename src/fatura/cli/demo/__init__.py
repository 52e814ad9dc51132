"""`fatura demo`: bill three months of twenty subscribers and show the result. Door: `command.demo`."""
