"""Create the charges of invoices at payment gateways, poll them, and cancel them; manage gateway connections.

Doors: `issuance`, `polling`, `late_charge_checks`, `cancellation`, `second_charges` and `gateway_connections`.
"""
