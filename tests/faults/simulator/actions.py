"""The random actions of simulated merchants."""

import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from fatura.domain.calendar import local_date
from tests.faults.simulator.client import Client
from tests.faults.simulator.gateway import PROVIDER
from tests.faults.simulator.gateway_state import OTHER_ACCOUNT, OWN_ACCOUNT
from tests.faults.simulator.side import World

CONFLICT = (409, 422)
LISTENS = 0.45
"""Share of merchants that register a webhook at the start."""
PERIODS = (1, 1, 1, 1, 1, 1, 1, 3)


class Merchant(Client):
    """The simulated merchant of one account. It remembers the products, plans and subscriptions that it created."""

    def __init__(self, world: World, account_id: str, api_key: str, rng: random.Random) -> None:
        super().__init__(world, account_id, api_key, rng)
        self.products: list[Any] = []
        self.plans: list[Any] = []
        self.subscriptions: list[str] = []
        self.connections: list[str] = []
        self.acknowledged: dict[str, str] = {}
        self.cursor = "0"
        self.read_events = 0
        self.enrolled = 0

    async def set_up(self, *, subscribers: int) -> None:
        await self.add_connection()
        if self.rng.random() < 0.4:
            await self.add_connection()
        if self.rng.random() < LISTENS:
            await self.register_webhook()
        for price in (0, 990, 4999, 12_345):
            await self.make_product({"mode": "fixed", "monthlyPriceCents": price})
        url = f"https://price.{self.account_id}.example.com/700"
        await self.make_product({"mode": "endpoint", "url": url, "capCents": 900_000})
        for _ in range(3):
            await self.make_plan()
        for _ in range(subscribers):
            await self.subscribe()

    async def add_connection(self) -> None:
        kind = self.rng.choice(("lookup", "lookup", "lookup", "key", "natural_id", "none"))
        body = {
            "provider": PROVIDER,
            "credentials": self.credentials(),
            "settings": {
                "idempotency": kind,
                "productCatalog": self.rng.random() < 0.5,
                "refunds": self.rng.choice(("key", "key", "lookup", "lookup", "none")),
            },
        }
        answer = await self.post("/v1/integration/gateways", body, allowed=(400,))
        if answer.status == 201:
            self.connections.append(answer.json["connectionId"])

    def credentials(self, *, provider_account: str = OWN_ACCOUNT) -> dict[str, Any]:
        token = self.world.side.gateway.token_of[self.world_account]
        return {"token": token, "account": provider_account}

    @property
    def world_account(self) -> Any:
        return UUID(self.account_id)

    async def make_product(self, pricing: Any) -> None:
        body = {
            "name": f"Product {len(self.products)}",
            "pricing": pricing,
            "externalRef": f"r{len(self.products)}",
        }
        self.products.append((await self.post("/v1/products", body)).json)

    def terms(self) -> dict[str, Any]:
        chosen = self.rng.sample(self.products, k=self.rng.choice((1, 1, 2)))
        method = self.rng.choice(("pix", "boleto", "card"))
        terms: dict[str, Any] = {
            "periodMonths": self.rng.choice(PERIODS),
            "defaultPaymentMethod": method,
            "items": [{"productId": each["id"], "discounts": self._discounts(each)} for each in chosen],
        }
        if method == "card":
            terms["maxInstallments"] = self.rng.choice((1, 3, 12))
        return terms

    def _discounts(self, product: Any) -> list[Any]:
        if product["pricingMode"] == "endpoint" or self.rng.random() < 0.6:
            return []
        return [
            {"percent": self.rng.choice((1, 33, 50, 100)), "fromCycle": 1, "toCycle": self.rng.choice((1, 2))}
        ]

    async def make_plan(self) -> None:
        answer = await self.post("/v1/plans", {"name": "Plan", **self.terms()}, allowed=CONFLICT)
        if answer.status == 201:
            self.plans.append(answer.json)

    async def subscribe(self) -> None:
        if not self.plans:
            return
        self.enrolled += 1
        reference = f"s{self.enrolled}"
        customer = f"c{self.rng.randrange(self.enrolled + 1)}"
        body: dict[str, Any] = {
            "planId": self.rng.choice(self.plans)["id"],
            "externalRef": reference,
            "customer": {
                "externalRef": customer,
                "name": "Ana",
                "email": "ana@example.com",
                "document": "12345678909",
            },
        }
        today = local_date(self.world.schedule.now)
        if self.rng.random() < 0.8:
            body["firstChargeDate"] = (today + timedelta(days=self.rng.randrange(1, 4))).isoformat()
        if self.rng.random() < 0.2:
            body["paymentMethod"] = "pix"
        if len(self.connections) > 1:
            body["gatewayConnectionId"] = self.rng.choice(self.connections)
        # The answer is 400 if `firstChargeDate` has passed before the request is executed.
        answer = await self.post("/v1/subscriptions", body, allowed=(400, *CONFLICT))
        if answer.status == 201:
            self.subscriptions.append(answer.json["id"])
            self.acknowledged[reference] = answer.json["id"]

    async def cancel_subscription(self) -> None:
        await self.post(f"/v1/subscriptions/{self._one()}/cancel", allowed=(409,))

    async def customize(self) -> None:
        await self.post(f"/v1/subscriptions/{self._one()}/customize", self.terms(), allowed=CONFLICT)

    async def preview(self) -> None:
        await self.get(f"/v1/subscriptions/{self._one()}/preview", allowed=(409,))

    def _one(self) -> str:
        return self.rng.choice(self.subscriptions or ["00000000-0000-7000-8000-000000000000"])

    async def edit_plan(self) -> None:
        plan = self.rng.choice(self.plans)["id"]
        await self.call("PUT", f"/v1/plans/{plan}", {"name": "New", **self.terms()}, allowed=CONFLICT)

    async def propagate(self) -> None:
        plan = self.rng.choice(self.plans)["id"]
        body = {"dryRun": self.rng.random() < 0.3}
        await self.post(f"/v1/plans/{plan}/propagate", body, allowed=CONFLICT)

    async def archive_product(self) -> None:
        verb = self.rng.choice(("archive", "unarchive"))
        await self.post(f"/v1/products/{self.rng.choice(self.products)['id']}/{verb}")

    async def edit_product(self) -> None:
        product = self.rng.choice(self.products)
        variable = product["pricingMode"] == "endpoint"
        change = {"capCents": 800_000} if variable else {"monthlyPriceCents": self.rng.randrange(5000)}
        await self.call("PATCH", f"/v1/products/{product['id']}", change)

    async def register_webhook(self) -> None:
        url = f"https://webhook.{self.account_id}.example.com/{self.rng.choice('ab')}"
        await self.call("PUT", "/v1/integration/webhook", {"url": url})

    async def rotate_secret(self) -> None:
        merchants = self.world.merchants
        merchants.rotating.add(self.account_id)
        answer = await self.post("/v1/integration/secret/rotate")
        merchants.secrets[self.account_id].append(answer.json["secret"])
        merchants.rotating.discard(self.account_id)

    async def redeliver(self) -> None:
        """Redeliver a random event. Each repeat of the request shows the delivery's state at that time (D-14)."""
        events = (await self.get(f"/v1/events?limit=200&cursor={self.rng.randrange(50)}"))["data"]
        if events:
            path = f"/v1/events/{self.rng.choice(events)['id']}/redeliver"
            await self.post(path, allowed=(409,), keyed=False)

    async def follow_events(self) -> None:
        page = await self.get(f"/v1/events?limit=200&cursor={self.cursor}")
        numbers = [each["sequence"] for each in page["data"]]
        if numbers != list(range(self.read_events + 1, self.read_events + 1 + len(numbers))):
            self.world.report_problem(f"the event stream has gaps after {self.read_events}: {numbers[:5]}")
        self.read_events += len(numbers)
        self.cursor = page["nextCursor"]

    async def pause_connection(self) -> None:
        path = f"/v1/integration/gateways/{self.rng.choice(self.connections)}"
        await self.call("PATCH", path, {"active": False})
        await self.world.schedule.sleep(self.rng.randrange(600, 20_000))
        await self.call("PATCH", path, {"active": True})

    async def send_credentials(self) -> None:
        for each in self.connections:
            body = {"credentials": self.credentials()}
            await self.call("PATCH", f"/v1/integration/gateways/{each}", body, allowed=(400,))

    async def send_wrong_credentials(self) -> None:
        """Send credentials of another account at the provider. The engine must refuse them with 409 (D-59).

        If the provider does not accept the credentials or does not answer, the API answers 400 instead.
        """
        path = f"/v1/integration/gateways/{self.rng.choice(self.connections)}"
        body = {"credentials": self.credentials(provider_account=OTHER_ACCOUNT)}
        self.world.faults.count("gateway: credentials of another account")
        answer = await self.call("PATCH", path, body, allowed=(400, 409))
        if answer.type not in {"engine.gateway_account_changed", "engine.invalid_request"}:
            self.world.report_problem(f"credentials of another account were answered {answer.status}")

    async def cancel_all_subscriptions(self) -> None:
        for each in self.subscriptions:
            await self.post(f"/v1/subscriptions/{each}/cancel", allowed=(409,))

    def actions(self) -> list[tuple[int, Callable[[], Awaitable[None]]]]:
        return [
            (6, self.subscribe),
            (3, self.cancel_subscription),
            (3, self.customize),
            (3, self.preview),
            (3, self.edit_plan),
            (3, self.propagate),
            (2, self.archive_product),
            (3, self.edit_product),
            (2, self.register_webhook),
            (3, self.rotate_secret),
            (3, self.redeliver),
            (5, self.follow_events),
            (2, self.pause_connection),
            (2, self.send_credentials),
            (1, self.send_wrong_credentials),
            (1, self.make_plan),
        ]
