"""Record payments, refunds and disputes in the ledgers of invoices, and cancel second charges.

Entry points: `gateway_payments.record` for gateways' answers, `pending_payments` for money received
elsewhere, `refund_calls` for refunds, `replacement` for the next charge of a reissued invoice,
`second_charges` for charges that an invoice must not have.
"""
