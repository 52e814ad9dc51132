"""The test double of Asaas in the contract suite: a server on a real port (`tests.doubles.asaas`)."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from fatura.domain.calendar import local_date
from fatura.gateways.adapters.asaas.adapter import AsaasGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Charge, ConnectionConfig, Gateway, Webhook
from tests.contract.provider import NOW
from tests.doubles.asaas.book import Account
from tests.doubles.asaas.contract import given_contract
from tests.doubles.asaas.server import AsaasDouble, open_double
from tests.doubles.server import Loss

TODAY = local_date(NOW)
READ = r"/payments/pay_\w+"


@dataclass(slots=True)
class AsaasProvider:
    double: AsaasDouble
    client: ProviderClient
    signs_webhook_bodies: bool = False
    lists_canceled: bool = False
    shows_refusals: bool = False
    shows_lost_refunds: bool = True

    async def connect(self) -> Gateway:
        return self.gateway(self.double.open_account(), webhookToken=uuid4().hex)

    def gateway(self, token: str, **settings: Any) -> AsaasGateway:
        given = {"environment": "sandbox", **settings}
        config = ConnectionConfig(uuid4(), uuid4(), given, {"accessToken": token}, NOW)
        return AsaasGateway(self.client, config, urls={"sandbox": self.double.url})

    def account(self, gateway: Gateway) -> Account:
        return self.double.accounts[_config(gateway).credentials["accessToken"]]

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).pay(charge.charge_id)

    async def refuse(self, gateway: Gateway, charge: Charge) -> None:
        """Do nothing: the payment stays PENDING when the hosted page refuses a card."""

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).delete(charge.charge_id)

    async def refund(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).refund(charge.charge_id, {})

    async def lose_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", "/payments", Loss.REQUEST)

    async def lose_next_answer(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", "/payments", Loss.ANSWER)

    async def lose_next_cancel(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("DELETE", READ, Loss.ERROR_AFTER)

    async def lose_next_refund(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", f"{READ}/refund", Loss.ANSWER)

    async def limit_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("POST", "/payments", Loss.RATE)

    async def fail_next_read(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", READ, Loss.ERROR_BEFORE)

    async def fail_next_list(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", "/payments", Loss.ERROR_BEFORE)

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook:
        payment = self.account(gateway).parts(charge.charge_id)[0]
        event = {
            "id": f"evt_{uuid4().hex}&1",
            "event": "PAYMENT_RECEIVED",
            "dateCreated": "2026-03-10 09:00:00",
        }
        body = json.dumps({**event, "payment": payment}, default=str).encode()
        return Webhook({"asaas-access-token": _config(gateway).settings["webhookToken"]}, "", body)

    async def catalog(self, gateway: Gateway) -> dict[str, str]:  # noqa: ARG002 - part of the interface
        return {}


@asynccontextmanager
async def opened_provider() -> AsyncGenerator[AsaasProvider]:
    """Run a double. If Asaas' document is given, fail at the end if an exchange contradicted it."""
    client = ProviderClient(is_exempt=True)
    async with open_double(TODAY, given_contract()) as double:
        yield AsaasProvider(double, client)
        await client.close()
    assert double.violations == []


def _config(gateway: Gateway) -> ConnectionConfig:
    assert isinstance(gateway, AsaasGateway)
    return gateway._config
