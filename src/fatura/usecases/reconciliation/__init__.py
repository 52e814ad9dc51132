"""Read charges from their gateways, and update invoices from the answers (D-35, D-55).

Entry points: `polling.reconcile`, `unmatched_charges.look` and `sweep.sweep` for workers, `gateway_webhooks`
for gateways' webhooks. Other use cases call `polling.poll_now`, `polling.check_earlier_now`, `polling.probe`,
`poll_times.next_poll` and `scheduled_looks`.
"""
