"""A shop that bills with a simulated Asaas (`tests.doubles.asaas`)."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from fatura.gateways.adapters.asaas import settings
from fatura.gateways.adapters.asaas.adapter import AsaasGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Webhook
from fatura.gateways.provider import Provider
from tests.doubles.asaas.book import Account
from tests.doubles.asaas.server import open_double
from tests.support.provider_shop import Shop, opened_shop
from tests.support.world import NOW, World

TOKEN = 40 * "w"


def provider(client: ProviderClient, url: str) -> Provider:
    """Return the provider with a simulated Asaas at this URL."""
    factory = partial(AsaasGateway, client, urls={"sandbox": url})
    return Provider(factory, frozenset(), settings.FIELDS, settings.CREDENTIALS)


def connection(token: str) -> Any:
    """Return the credentials and settings of a connection to the account with this API key."""
    return {
        "credentials": {"accessToken": token},
        "settings": {"environment": "sandbox", "webhookToken": TOKEN},
    }


@asynccontextmanager
async def open_asaas_shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
    client = ProviderClient(is_exempt=True)
    async with open_double(NOW.date()) as double:
        token = double.open_account()
        asaas = provider(client, double.url)
        async with opened_shop(world, double, "asaas", asaas, connection(token)) as opened:
            yield opened, double.accounts[token]
        await client.close()


async def hook(shop: Shop, payment: Any, *, token: str = TOKEN) -> int:
    """Send a new webhook about a payment, and return the status of the answer."""
    return await shop.hook(webhook(payment, token=token))


def webhook(payment: Any, *, token: str = TOKEN) -> Webhook:
    event = {"id": f"evt_{uuid4().hex}", "event": "PAYMENT_RECEIVED", "payment": payment}
    return Webhook({"asaas-access-token": token}, "", json.dumps(event, default=str).encode())


def charges_of(account: Account, invoice: Any) -> list[Any]:
    """Return the payments at Asaas of an invoice that can be paid or are paid."""
    return [
        each
        for each in account.payments.values()
        if each["externalReference"].startswith(invoice["id"]) and not each["deleted"]
    ]
