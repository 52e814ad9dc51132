"""Deliver events to the account's webhook, and serve them as a stream.

Entry points: workers call `delivery.deliver`; the routes call the functions of `webhooks` and `events`.
"""
