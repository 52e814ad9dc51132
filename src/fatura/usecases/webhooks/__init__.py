"""Deliver events to the account's webhook, and serve them as a stream.

Entry points: `delivery.deliver` for background work, and the functions of `webhooks` and `events` for the routes.
"""
