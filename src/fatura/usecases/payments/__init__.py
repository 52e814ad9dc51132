"""Record payments, refunds and disputes in the ledgers of invoices, and cancel second charges.

Entry points: `gateway_payments.record` for gateways' answers, `pending_payments` for money received
elsewhere, `refund_calls` for refunds, `replacement` for the next charge of a reissued invoice,
`second_charges` for charges that an invoice must not have, `merchant_requests` and `waiting_requests` for requests that
wait until the gateway has canceled a charge.
"""
