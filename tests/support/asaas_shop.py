"""A shop that bills with a simulated Asaas (`tests.doubles.asaas`)."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from fatura.gateways.adapters.asaas import settings
from fatura.gateways.adapters.asaas.adapter import AsaasGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Capabilities
from fatura.gateways.provider import Provider
from tests.doubles.asaas.book import Account
from tests.doubles.asaas.server import open_double
from tests.support.provider_shop import Shop, opened_shop
from tests.support.world import NOW, World

TOKEN = 40 * "w"


class HastyAsaas(AsaasGateway):
    """An adapter without a budget of polls, because a test clock would wait for it in real time."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), polls_per_minute=None)


@asynccontextmanager
async def open_asaas_shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
    client = ProviderClient(is_exempt=True)
    async with open_double(NOW.date()) as double:
        factory = partial(HastyAsaas, client, urls={"sandbox": double.url})
        token = double.open_account()
        connection = {
            "credentials": {"accessToken": token},
            "settings": {"environment": "sandbox", "webhookToken": TOKEN},
        }
        provider = Provider(factory, frozenset(), settings.FIELDS, settings.CREDENTIALS)
        async with opened_shop(world, double, "asaas", provider, connection) as opened:
            yield opened, double.accounts[token]
        await client.close()


async def hook(shop: Shop, payment: Any, *, token: str = TOKEN) -> int:
    """Send a new webhook about a payment, and return the status of the answer."""
    event = {"id": f"evt_{uuid4().hex}", "event": "PAYMENT_RECEIVED", "payment": payment}
    return await shop.hook(json.dumps(event, default=str).encode(), {"asaas-access-token": token})


def charges_of(account: Account, invoice: Any) -> list[Any]:
    """Return the payments at Asaas of an invoice that can be paid or are paid."""
    return [
        each
        for each in account.payments.values()
        if each["externalReference"].startswith(invoice["id"]) and not each["deleted"]
    ]
