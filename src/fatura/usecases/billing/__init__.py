"""Generate the invoices of due subscriptions, read them, and change their status.

Entry points: `generation.run` bills due subscriptions, `invoices.read` and `invoices.read_page` show invoices,
`invoice_moves.report` changes their status, `invoice_moves.alert` emits an event without changing the status.
"""
