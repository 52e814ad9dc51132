"""A simulated Asaas: it keeps customers and payments in memory, and refuses what Asaas' documentation says.

Entry point: `server.AsaasDouble`.
"""
