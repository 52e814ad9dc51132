"""HTTP calls to merchants' servers.

Entry points: `webhook.post` delivers an event, `price_endpoint` requests a price, both through `http.MerchantClient`.
"""
