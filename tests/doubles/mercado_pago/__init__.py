"""A simulated Mercado Pago: it keeps preferences and payments in memory, and refuses what its documents say.

Entry point: `server.MercadoPagoDouble`.
"""
