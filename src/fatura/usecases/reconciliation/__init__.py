"""Poll the charges of invoices at their gateways, and process what the answers say (D-35, D-55).

Entry points: `polling.reconcile` for workers, `gateway_webhooks.receive_webhook` for gateways' webhooks.
Other use cases call `polling.poll_now` and `polling.probe`.
"""
