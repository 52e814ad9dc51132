"""Statements for products, plan versions, the propagation of versions to subscriptions, and product mirrors."""
