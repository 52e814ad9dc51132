"""Add, change and list gateway connections, and observe every call to their providers.

Entry points: `gateway_connections` serves routes and creates adapters, `connection_health` handles failing
connections, and `poll_rounds` polls all unpaid charges of a connection.
"""
