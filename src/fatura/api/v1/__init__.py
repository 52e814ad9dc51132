"""The routes of version 1, one file per resource, each with its request models."""

from fatura.api.http.declare import Routes
from fatura.api.v1 import (
    audit,
    connections,
    customers,
    events,
    integration,
    invoices,
    pay_page,
    plans,
    products,
    sandbox,
    subscriptions,
    webhooks,
)

RESOURCES: tuple[Routes, ...] = (
    products.routes,
    plans.routes,
    subscriptions.routes,
    customers.routes,
    invoices.routes,
    events.routes,
    integration.routes,
    connections.routes,
    pay_page.routes,
    webhooks.routes,
    audit.routes,
    sandbox.routes,
)
"""All routes by resource, in the order of the documentation."""
