"""The test double of Stripe in the contract suite: a server on a real port (`tests.doubles.stripe`)."""

import hmac
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

from fatura.gateways.adapters.stripe.adapter import StripeGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import (
    Charge,
    ChargeRequest,
    ChargeState,
    ConnectionConfig,
    Gateway,
    Line,
    Webhook,
)
from fatura.ids import new_id
from tests.contract.provider import NOW, charge_request
from tests.doubles.server import Loss
from tests.doubles.stripe.book import Account
from tests.doubles.stripe.contract import given_contract
from tests.doubles.stripe.server import StripeDouble, open_double

READ = r"/v1/invoices/in_\w+"


@dataclass(slots=True)
class StripeProvider:
    double: StripeDouble
    client: ProviderClient
    signs_webhook_bodies: bool = True
    lists_canceled: bool = True
    shows_refusals: bool = False
    shows_lost_refunds: bool = True

    async def connect(self) -> Gateway:
        return self.gateway(self.double.open_account(), webhookSecret=f"whsec_{uuid4().hex}")

    def gateway(self, key: str, **settings: Any) -> StripeGateway:
        given = {"environment": "sandbox", **settings}
        config = ConnectionConfig(uuid4(), uuid4(), given, {"apiKey": key}, self.double.now)
        return StripeGateway(self.client, config, url=self.double.url)

    def account(self, gateway: Gateway) -> Account:
        return self.double.accounts[config_of(gateway).credentials["apiKey"]]

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).pay(charge.charge_id)

    async def refuse(self, gateway: Gateway, charge: Charge) -> None:
        """Do nothing: the invoice stays open when the hosted page refuses a card."""

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).void(charge.charge_id)

    async def refund(self, gateway: Gateway, charge: Charge) -> None:
        account = self.account(gateway)
        [payment] = account.payments(charge.charge_id)
        intent = payment["payment"]["payment_intent"]
        account.refund({"payment_intent": intent, "amount": str(payment["amount_paid"])})

    async def lose_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", "/v1/invoices", Loss.REQUEST)

    async def lose_next_answer(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", f"{READ}/finalize", Loss.ANSWER)

    async def lose_next_cancel(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", f"{READ}/void", Loss.ANSWER)

    async def lose_next_refund(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", "/v1/refunds", Loss.ANSWER)

    async def limit_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", "/v1/invoices", Loss.RATE)

    async def fail_next_read(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", READ, Loss.ERROR_BEFORE)

    async def fail_next_list(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", "/v1/invoices", Loss.ERROR_BEFORE)

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook:
        body = event(self.account(gateway).found("invoice", charge.charge_id))
        secret = config_of(gateway).settings["webhookSecret"]
        return Webhook({"stripe-signature": signature(body, secret, at=int(NOW.timestamp()))}, "", body)

    async def catalog(self, gateway: Gateway) -> dict[str, str]:
        return {name: each["name"] for name, each in self.account(gateway).of("product").items()}


def request_of_lines() -> ChargeRequest:
    """Return a request with three lines, and with an id that says when the invoice was generated."""
    lines = (Line("Gold", 5000), Line("Locker", 3990), Line("Towel", 1000))
    return replace(charge_request(), invoice_id=new_id(NOW), lines=lines)


def after(gateway: Gateway, provider: StripeProvider, passed: timedelta) -> Gateway:
    """Let time pass at Stripe, and return the adapter of a later call."""
    provider.double.now = NOW + passed
    later: Any = provider.gateway("sk_test_" + 24 * "0")
    later._config = replace(config_of(gateway), now=NOW + passed)
    return later


def assert_one_open(
    provider: StripeProvider, gateway: Gateway, request: ChargeRequest, charge: Charge
) -> None:
    """Check that Stripe has one open invoice, with the right amount, and nothing else."""
    [invoice] = provider.account(gateway).invoices.values()
    assert (invoice["id"], invoice["status"]) == (charge.charge_id, "open")
    assert invoice["amount_due"] == charge.amount_cents == request.amount_cents
    assert [line["amount"] for line in invoice["lines"]["data"]] == [
        line.amount_cents for line in request.lines
    ]
    assert len(provider.account(gateway).of("customer")) == 1
    assert (charge.state, charge.due_date) == (ChargeState.OPEN, request.due_date)


def event(of: Any, kind: str = "invoice.paid", **more: Any) -> bytes:
    """Return the body of a webhook about an object."""
    about = {"id": f"evt_{uuid4().hex}", "object": "event", "type": kind, "livemode": False, "created": 0}
    return json.dumps({**about, "data": {"object": of}, **more}).encode()


def signature(body: bytes, *secrets: str, at: int) -> str:
    """Return the header Stripe-Signature with one signature for each secret."""
    digests = [hmac.new(each.encode(), b"%d.%s" % (at, body), sha256).hexdigest() for each in secrets]
    return ",".join([f"t={at}", "v0=0", *(f"v1={each}" for each in digests)])


@asynccontextmanager
async def opened_provider() -> AsyncGenerator[StripeProvider]:
    """Run a double. If Stripe's document is given, fail at the end if an exchange contradicted it."""
    client = ProviderClient(is_exempt=True)
    async with open_double(NOW, given_contract()) as double:
        yield StripeProvider(double, client)
        await client.close()
    assert double.violations == []


def config_of(gateway: Gateway) -> ConnectionConfig:
    assert isinstance(gateway, StripeGateway)
    return gateway._config
