"""The engine bills with Asaas over HTTP, while requests and answers are lost (D-33, D-261)."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from fatura.gateways.adapters.asaas import settings
from fatura.gateways.adapters.asaas.adapter import AsaasGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Capabilities
from fatura.gateways.provider import Provider
from tests.doubles.asaas.book import Account
from tests.doubles.asaas.server import open_double
from tests.support.provider_shop import Losses, Shop, assert_all_paid, bill_through_losses, opened_shop
from tests.support.world import NOW, World

TOKEN = 40 * "w"


class HastyAsaas(AsaasGateway):
    """An adapter without a budget of polls, because a test clock would wait for it in real time."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), polls_per_minute=None)


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
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


@pytest.mark.faults
async def test_lost_answers_leave_one_charge_for_each_invoice(shop: tuple[Shop, Account]) -> None:
    """Workers also die in the middle of calls. Then all payers pay, and the ledger has every cent. [D-33, D-261]"""
    opened, account = shop
    losses = Losses(7, lambda method, path: (method, path) == ("POST", "/payments"))
    for invoice in await bill_through_losses(opened, losses, least_cents=500):
        [charge] = charges_of(account, invoice)
        assert (charge["value"] * 100, charge["status"]) == (invoice["totalCents"], "PENDING")
        account.pay(charge["id"])
        assert await hook(opened, charge) == 200
    await opened.world.run()
    received = [each["value"] * 100 for each in account.payments.values() if each["status"] == "RECEIVED"]
    await assert_all_paid(opened.world, int(sum(received)))


async def test_a_webhook_lets_the_engine_read_the_charge(shop: tuple[Shop, Account]) -> None:
    """A forged webhook changes nothing, because the engine reads the state from Asaas. [D-35 webhook, D-261]"""
    opened, account = shop
    world = opened.world
    assert TOKEN not in str((await world.get("/v1/integration")).json)
    await opened.bill(1, await world.plan(await world.product(9990)))
    await world.run()
    [invoice] = await world.invoices()
    [charge] = charges_of(account, invoice)
    shown = (await world.get(f"/v1/invoices/{invoice['id']}")).json["payment"]
    assert (shown["url"], shown["pixCode"][:6]) == (charge["invoiceUrl"], "000201")

    assert await hook(opened, {**charge, "status": "RECEIVED"}) == 200
    await world.run()
    assert [each["status"] for each in await world.invoices()] == ["issued"]
    account.pay(charge["id"])
    assert await hook(opened, charge, token=TOKEN[1:] + "x") == 404
    assert await hook(opened, charge) == 200
    await world.run()
    [paid] = await world.invoices()
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
