"""HTTP calls to merchants' servers.

Entry points: `webhook.post` delivers an event, and `price_endpoint.call_price_endpoint` requests a price. Both take a
session of `http.MerchantClient`.
"""
