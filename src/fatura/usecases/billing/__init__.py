"""Generate the invoices of due subscriptions and move invoices between states."""
