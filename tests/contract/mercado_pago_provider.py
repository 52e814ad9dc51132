"""The test double of Mercado Pago in the contract suite: a server on a real port (`tests.doubles.mercado_pago`)."""

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from fatura.gateways.adapters.mercado_pago.adapter import MercadoPagoGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Charge, ConnectionConfig, Gateway, Webhook
from tests.contract.provider import NOW
from tests.doubles.mercado_pago.book import Account
from tests.doubles.mercado_pago.contract import given_contract
from tests.doubles.mercado_pago.server import MercadoPagoDouble, open_double
from tests.doubles.server import Loss

PREFERENCES = "/checkout/preferences"
PREFERENCE = f"{PREFERENCES}/[0-9]+-.*"


@dataclass(slots=True)
class MercadoPagoProvider:
    double: MercadoPagoDouble
    client: ProviderClient
    signs_webhook_bodies: bool = False
    lists_canceled: bool = False
    shows_refusals: bool = True
    shows_lost_refunds: bool = False

    async def connect(self) -> Gateway:
        return self.gateway(self.double.open_account(), webhookSecret=uuid4().hex)

    def gateway(self, token: str, **settings: Any) -> MercadoPagoGateway:
        given = {"environment": "test", "daysAfterDueDate": 0, **settings}
        config = ConnectionConfig(uuid4(), uuid4(), given, {"accessToken": token}, NOW)
        return MercadoPagoGateway(self.client, config, url=self.double.url)

    def account(self, gateway: Gateway) -> Account:
        return self.double.accounts[config_of(gateway).credentials["accessToken"]]

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).attempt(charge.charge_id)

    async def refuse(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).attempt(charge.charge_id, "rejected")

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        """End the preference by another program, because Mercado Pago's dashboard does not show preferences."""
        preference = self.account(gateway).preference(charge.charge_id)
        preference["expiration_date_to"] = (NOW - timedelta(minutes=1)).isoformat()

    async def refund(self, gateway: Gateway, charge: Charge) -> None:  # noqa: ARG002 - part of the interface
        account = self.account(gateway)
        (payment,) = account.payments.values()
        account.refund(str(payment["id"]), {}, "dashboard", shows_in_process=True)

    async def lose_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", PREFERENCES, Loss.REQUEST)

    async def lose_next_answer(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", PREFERENCES, Loss.ANSWER)

    async def lose_next_cancel(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("PUT", PREFERENCE, Loss.ERROR_AFTER)

    async def lose_next_refund(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", "/v1/payments/[0-9]+/refunds", Loss.ANSWER)

    async def limit_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", PREFERENCES, Loss.RATE)

    async def fail_next_read(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", PREFERENCE, Loss.ERROR_BEFORE)

    async def fail_next_list(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", "/v1/payments/search", Loss.ERROR_BEFORE)

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook:  # noqa: ARG002 - part of the interface
        return signed(144_654_396_660, secret=config_of(gateway).settings["webhookSecret"])

    async def catalog(self, gateway: Gateway) -> dict[str, str]:  # noqa: ARG002 - part of the interface
        return {}


def signed(payment_id: int, *, secret: str, at: float = NOW.timestamp(), kind: str = "payment") -> Webhook:
    """Return the webhook about a payment, signed at a time."""
    sent_at, request_id = int(at * 1000), str(uuid4())
    text = f"id:{payment_id};request-id:{request_id};ts:{sent_at};"
    signature = hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    event = {
        "action": "payment.updated",
        "api_version": "v1",
        "data": {"id": str(payment_id)},
        "date_created": "2026-03-10T12:00:00Z",
        "id": 123_456,
        "live_mode": False,
        "type": kind,
        "user_id": 724_484_980,
    }
    headers = {"x-signature": f"ts={sent_at},v1={signature}", "x-request-id": request_id}
    return Webhook(headers, f"data.id={payment_id}&type={kind}", json.dumps(event).encode())


@asynccontextmanager
async def opened_provider() -> AsyncGenerator[MercadoPagoProvider]:
    """Run a double. If the document is given, fail at the end if an exchange contradicted it."""
    client = ProviderClient(is_exempt=True)
    async with open_double(lambda: NOW, given_contract()) as double:
        yield MercadoPagoProvider(double, client)
        await client.close()
    assert sorted(set(double.violations)) == []


def config_of(gateway: Gateway) -> ConnectionConfig:
    assert isinstance(gateway, MercadoPagoGateway)
    return gateway._config
