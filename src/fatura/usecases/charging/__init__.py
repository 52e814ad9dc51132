"""Create charges through payment gateways, poll them, and cancel them with their invoices."""
