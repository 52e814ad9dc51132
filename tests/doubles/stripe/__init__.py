"""A simulated Stripe: it keeps customers, invoices and payments in memory, and refuses what Stripe's API refuses.

Entry point: `server.StripeDouble`.
"""
