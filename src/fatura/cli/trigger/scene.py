"""The requests that recipes send to the API: subscribe a customer, change a charge, move the test clock."""

import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from fatura.cli.client import ApiError, Client
from fatura.cli.event_stream import Stream

PRODUCT_REF = "fatura-trigger"
PLAN_NAMES = {"fixed": "fatura trigger", "endpoint": "fatura trigger: no price"}
FAILING_URL = "https://price.fatura-trigger.invalid/price"
"""A price endpoint that never answers, because no name below `.invalid` exists."""
MONTHLY_CENTS = 9990
WAIT_SECONDS = 60
POLL_SECONDS = 0.1
PAGE = 100
Json = Any


class Scene:
    """One run of `fatura trigger`: its subscription and invoice, and the event stream since the run began."""

    def __init__(
        self, client: Client, *, after: int, connection_id: str, note: Callable[[str], None]
    ) -> None:
        self.client = client
        self.connection_id = connection_id
        self.subscription: Json = None
        self.invoice_id = ""
        self._after = after
        self._note = note

    async def post(self, path: str, body: Json = None) -> Json:
        """Send a POST request, then print a note with its path. Raises ApiError, ApiUnavailableError."""
        answer = await self.client.post(path, body)
        self._note(f"POST {path}")
        return answer

    async def subscribe(self, *, pricing: str = "fixed", fresh_plan: bool = False) -> None:
        """Subscribe a new customer, and set `subscription`. The first invoice is due in three days."""
        plan = None if fresh_plan else await self._find_plan(PLAN_NAMES[pricing])
        plan = plan or await self._make_plan(pricing)
        ref = f"trigger-{secrets.token_hex(4)}"
        self.subscription = await self.post(
            "/v1/subscriptions",
            {
                "planId": plan["id"],
                "gatewayConnectionId": self.connection_id,
                "customer": {
                    "externalRef": ref,
                    "name": f"Customer {ref}",
                    "email": f"{ref}@example.com",
                    "document": "529.982.247-25",
                },
            },
        )

    async def _find_plan(self, name: str) -> Json:
        listed = await self.client.get(f"/v1/plans?archived=false&pageSize={PAGE}")
        return next((each for each in listed["data"] if each["name"] == name), None)

    async def _make_plan(self, pricing: str) -> Json:
        if pricing == "fixed":
            price: Json = {"mode": "fixed", "monthlyPriceCents": MONTHLY_CENTS}
        else:
            price = {"mode": "endpoint", "url": FAILING_URL, "capCents": MONTHLY_CENTS}
        product = await self.post(
            "/v1/products", {"name": "Triggered product", "externalRef": PRODUCT_REF, "pricing": price}
        )
        return await self.post(
            "/v1/plans",
            {
                "name": PLAN_NAMES[pricing],
                "periodMonths": 1,
                "defaultPaymentMethod": "pix",
                "items": [{"productId": product["id"]}],
            },
        )

    async def invoice(self, event: str = "invoice.issued", *, pricing: str = "fixed") -> Json:
        """Subscribe a customer, wait for `event` about the first invoice, and return the invoice in the event."""
        await self.subscribe(pricing=pricing)
        found = await self.wait_for(event)
        self.invoice_id = found["data"]["invoice"]["id"]
        return found["data"]["invoice"]

    async def move(self, route: str, body: Json = None) -> None:
        """Change the newest charge of the invoice in the sandbox gateway."""
        listed = await self.client.get(f"/v1/sandbox/charges?invoiceId={self.invoice_id}")
        await self.post(f"/v1/sandbox/charges/{listed['data'][0]['chargeId']}/{route}", body)

    async def advance(self, duration: timedelta) -> None:
        """Move the account's test clock forward."""
        now = datetime.fromisoformat((await self.client.get("/v1/test-clock"))["now"])
        to = (now + duration).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await self.post("/v1/test-clock/advance", {"to": to})

    async def wait_for(self, type_: str) -> Json:
        """Wait for the first event of this type about this run's subscription, invoice or customer, and return it.

        Raises ApiError, for example if no such event comes within WAIT_SECONDS.
        """
        give_up_at = time.monotonic() + WAIT_SECONDS
        stream = Stream(self.client, print_note=self._note, type_=type_)
        while time.monotonic() < give_up_at:
            async for event in stream.until(self._after, sys.maxsize):
                known = event.parsed()
                if self._is_ours(known["data"]):
                    return known
            await asyncio.sleep(POLL_SECONDS)
        raise ApiError(
            f"no {type_} came within {WAIT_SECONDS} s. Check that a worker runs (`fatura worker`, or `fatura up`), and "
            "that the setting `behaviour` of the gateway connection is `pay_on_due` or `never_pay`"
        )

    def _is_ours(self, data: Json) -> bool:
        invoice, subscription = data.get("invoice"), data.get("subscription")
        if (customer := data.get("customer")) is not None:
            return customer["id"] == self.subscription["customer"]["id"]
        if invoice is not None:
            return self.subscription is not None and invoice["subscriptionId"] == self.subscription["id"]
        return subscription is not None and subscription["id"] == self.subscription["id"]
