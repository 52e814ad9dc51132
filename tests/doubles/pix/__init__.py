"""A simulated bank with the Central Bank's Pix API: it requires client certificates and tokens.

Entry point: `server.open_double`.
"""
