"""Calls to merchants' servers.

Doors: `http.MerchantClient` guards every call, `webhook.post` delivers an event, `price_endpoint` asks for a price.
"""
