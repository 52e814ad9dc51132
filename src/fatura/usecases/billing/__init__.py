"""Generate the invoices of due subscriptions, read them, and change their status.

Entry points: `generation.run` bills due subscriptions, `invoices.read` and `invoices.read_page` show invoices,
`invoice_moves.report` changes the status of invoices, `invoice_moves.alert` only emits an event about an invoice.
"""
