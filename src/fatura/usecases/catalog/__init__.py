"""Manage products and plans, move subscribers to a plan's current version, and copy products to gateways.

Entry points: the functions of `products` and `plans` behind the routes, `propagation.propagate`, `mirroring.mirror`;
subscriptions check and store their private terms with `plans.check_terms` and `plans.store_version`.
"""
