"""Manage products and plans, move subscribers to a plan's current version, and copy products to gateways.

Entry points: the functions of `products`, `plans` and `propagation`, and `mirroring.mirror`. The package
`subscriptions` calls `plans.check_terms` and `plans.store_version` for private terms, which only one subscription has.
"""
