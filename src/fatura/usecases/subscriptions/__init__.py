"""Subscribe customers to plans; preview, customize and cancel subscriptions; read and correct customers.

Entry points: the functions of `subscriptions` and `customers` that the routes call.
"""
