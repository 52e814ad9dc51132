"""All routes of the API by resource, in the order of the documentation."""

from fatura.api.http.declare import Routes
from fatura.api.v1 import (
    customers,
    events,
    integration,
    invoices,
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
    webhooks.routes,
    sandbox.routes,
)
