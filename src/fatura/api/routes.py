"""All routes of the API, noun by noun, in the order of the documentation."""

from fatura.api import (
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
from fatura.api.declare import Routes

NOUNS: tuple[Routes, ...] = (
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
