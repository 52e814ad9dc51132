"""Add, change and list gateway connections, and observe every call to their providers.

Entry points: `gateway_connections` for routes and to create adapters, `connection_health` for failing
connections.
"""
