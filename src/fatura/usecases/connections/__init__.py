"""Add, change and list gateway connections, and observe every call to their providers.

Entry points: `gateway_connections` for routes and to create adapters, `connection_health` for failing
connections, `poll_rounds` to poll all unpaid charges of a connection.
"""
