"""The demo's catalog and customers: products, five plans, twenty subscribers.

Some products have a fixed price. The metered products are variable: Fatura calls the example merchant for their prices.
"""

from dataclasses import dataclass
from typing import Any

from rich.progress import Progress

from fatura.cli.client import Client

SUBSCRIBERS = 20
NEVER_PAY = frozenset({4, 11, 17})
QUARTERLY, MONTHLY, CLASSES, TOWELS, SMOOTHIES = range(5)
"""Positions of the plans in the list that `make_catalog` returns."""
METERED = {1: CLASSES, 7: CLASSES, 10: TOWELS, 13: TOWELS, 5: SMOOTHIES, 14: SMOOTHIES}
"""The plan of each subscriber who gets a metered product, by the subscriber's index from 0.

All other subscribers have fixed products only.
"""
CAP_CENTS = 50_000


@dataclass(frozen=True, slots=True)
class MeteredProduct:
    """A variable product. `says` completes a sentence that the demo prints below the table of variable items."""

    external_ref: str
    name: str
    says: str


METERED_PRODUCTS = (
    MeteredProduct("classes", "Classes", "are answered immediately"),
    MeteredProduct("towels", "Towels", "are held until a retry succeeds"),
    MeteredProduct("smoothies", "Smoothies", "are held until a person enters a value"),
)


async def make_catalog(client: Client, *, merchant: str) -> list[str]:
    """Create the products and plans, and return the ids of the plans. `merchant` is the URL of the example merchant."""
    fixed = [
        await _make_product(client, name, {"mode": "fixed", "monthlyPriceCents": cents})
        for name, cents in (("Gym membership", 9990), ("Personal trainer", 15000), ("Locker", 1250))
    ]
    gym, trainer, locker = fixed
    metered = [
        await _make_product(
            client,
            each.name,
            {"mode": "endpoint", "url": f"{merchant}/price", "capCents": CAP_CENTS},
            externalRef=each.external_ref,
        )
        for each in METERED_PRODUCTS
    ]
    launch = [{"percent": 20, "fromCycle": 1, "toCycle": 2}]
    quarterly = {"periodMonths": 3, "defaultPaymentMethod": "card", "maxInstallments": 3}
    monthly = {"periodMonths": 1, "defaultPaymentMethod": "pix"}
    plans: list[dict[str, Any]] = [
        {"name": "Gym and trainer, quarterly", **quarterly, "items": _items(gym, trainer)},
        {
            "name": "Gym monthly, 20% off the first two months",
            **monthly,
            "items": [{"productId": gym, "discounts": launch}, {"productId": locker}],
        },
        *(
            {"name": f"Gym and {each.name.lower()}", **monthly, "items": _items(gym, product)}
            for each, product in zip(METERED_PRODUCTS, metered, strict=True)
        ),
    ]
    return [(await client.post("/v1/plans", plan))["id"] for plan in plans]


async def _make_product(client: Client, name: str, pricing: dict[str, Any], **fields: str) -> str:
    return (await client.post("/v1/products", {"name": name, "pricing": pricing, **fields}))["id"]


def _items(*products: str) -> list[dict[str, str]]:
    return [{"productId": product} for product in products]


async def enroll(client: Client, plans: list[str], *, progress: Progress) -> list[dict[str, Any]]:
    """Subscribe twenty customers with different charge days, and return the subscriptions.

    Three subscriptions use a connection whose charges nobody pays.
    """
    prompt = (await client.get("/v1/integration"))["gateways"][0]["connectionId"]
    never = await client.post(
        "/v1/integration/gateways",
        {
            "provider": "sandbox",
            "label": "Never paid",
            "credentials": {},
            "settings": {"behaviour": "never_pay"},
        },
    )
    task = progress.add_task("subscribing customers", total=SUBSCRIBERS, note="")
    subscriptions: list[dict[str, Any]] = []
    for number in range(SUBSCRIBERS):
        plan = METERED.get(number, QUARTERLY if number % 3 == 0 else MONTHLY)
        subscription = await client.post(
            "/v1/subscriptions",
            {
                "planId": plans[plan],
                "externalRef": f"subscription-{number + 1}",
                "customer": {
                    "externalRef": f"customer-{number + 1}",
                    "name": f"Customer {number + 1}",
                    "email": f"customer{number + 1}@example.com",
                },
                "chargeDay": 1 + number * 28 // SUBSCRIBERS,
                "gatewayConnectionId": never["connectionId"] if number in NEVER_PAY else prompt,
            },
        )
        subscriptions.append(subscription)
        progress.update(task, advance=1)
    return subscriptions
