"""Manage products and plans, move subscribers to a plan's current version, and copy products to gateways.

Entry points: the functions of `products`, `plans` and `propagation`, and `mirroring.mirror`. The package
`subscriptions` checks and stores terms that only one subscription has (private terms) with `plans.check_terms` and
`plans.store_version`.
"""
