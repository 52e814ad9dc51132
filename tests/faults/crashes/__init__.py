"""Kill the engine with SIGKILL in the middle of operations, which are called flows, and check that it recovers.

A kill occurs at an SQL statement, or at a call to the gateway or to a merchant.
"""
