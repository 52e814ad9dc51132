"""Subscribe customers to plans; preview, customize and cancel subscriptions; read and correct customers.

Doors: the functions of `subscriptions` and `customers` behind the routes.
"""
