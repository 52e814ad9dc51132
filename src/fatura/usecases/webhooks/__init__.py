"""Deliver events to the account's webhook and serve them as a stream.

Doors: `delivery.deliver` for the push lane; `webhooks` registers, shows and redelivers; `events` reads the stream.
"""
