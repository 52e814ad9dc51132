"""Generate the invoices of due subscriptions, read them, and change their status.

Entry points: `generation.run` bills due subscriptions, the functions of `invoices` show invoices, and `report` and
`report_in_turn` of `invoice_moves` change the status of invoices. `invoice_moves.alert` only emits an event about an
invoice.
"""
