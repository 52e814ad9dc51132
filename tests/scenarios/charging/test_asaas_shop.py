"""The engine bills with Asaas over HTTP, while requests and answers are lost (D-33, D-261)."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.asaas import settings
from fatura.gateways.adapters.asaas.adapter import AsaasGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Capabilities
from fatura.gateways.provider import Provider
from tests.doubles.asaas.book import Account
from tests.doubles.asaas.server import AsaasDouble, Loss, open_double
from tests.support.world import LANE, NOW, World, api_client, run_until_idle

TOKEN = 40 * "w"
CUSTOMERS = 200
SEED = 7


class HastyAsaas(AsaasGateway):
    """An adapter without a budget of polls, because a test clock would wait for it in real time."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), polls_per_second=None)


@dataclass(slots=True)
class Shop:
    """A sandbox account that may connect to the simulated Asaas, so that its test clock can be moved."""

    world: World
    double: AsaasDouble
    account: Account
    connection_id: str

    async def bill(self, number: int, *, cents: int) -> None:
        plan = await self.world.plan(await self.world.product(cents))
        customer = {"externalRef": f"c-{number}", "name": f"Ana {number}", "document": "52998224725"}
        body = {
            "customer": {**customer, "email": "ana@example.com"},
            "gatewayConnectionId": self.connection_id,
        }
        await self.world.enroll(plan, **body)

    async def hook(self, payment: Any, *, token: str = TOKEN) -> int:
        """Send the webhook about a payment, and return the status of the answer."""
        event = {"id": "evt_1&1", "event": "PAYMENT_RECEIVED", "payment": payment}
        path = f"/gateways/{self.world.account_id}/{self.connection_id}/webhook"
        content = json.dumps(event, default=str).encode()
        headers = {"asaas-access-token": token}
        return (await self.world.call("POST", path, content=content, headers=headers)).status

    def charges_of(self, invoice: Any) -> list[Any]:
        """Return the payments at Asaas of an invoice that can be paid or are paid."""
        payments = self.account.payments.values()
        return [
            each
            for each in payments
            if each["externalReference"].startswith(invoice["id"]) and not each["deleted"]
        ]


@asynccontextmanager
async def opened_shop(world: World) -> AsyncGenerator[Shop]:
    client = ProviderClient(is_exempt=True)
    async with open_double(NOW.date()) as double:
        factory = partial(HastyAsaas, client, urls={"sandbox": double.url})
        asaas = Provider(factory, frozenset({Mode.SANDBOX}), settings.FIELDS, settings.CREDENTIALS)
        deps = replace(world.deps, providers={**world.deps.providers, "asaas": asaas})
        async with api_client(deps) as http:
            world.deps, world._client = deps, http
            token = double.open_account()
            body = {
                "provider": "asaas",
                "credentials": {"accessToken": token},
                "settings": {"environment": "sandbox", "webhookToken": TOKEN},
            }
            made = await world.made("/v1/integration/gateways", body)
            assert TOKEN not in json.dumps(made)
            yield Shop(world, double, double.accounts[token], made["connectionId"])
        await client.close()


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[Shop]:
    async with opened_shop(world) as opened:
        yield opened


class Losses:
    """Lets 30 % of the answers to writes be lost, and some requests and reads. Counts what was lost of new charges."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.lost = Counter[Loss]()

    def __call__(self, method: str, path: str) -> Loss | None:
        kinds = [Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK, Loss.REQUEST, Loss.RATE, Loss.ERROR_BEFORE, None]
        weights = [10, 10, 10, 5, 5, 5, 55] if method != "GET" else [0, 3, 3, 0, 3, 3, 88]
        [loss] = self.chance.choices(kinds, weights)
        if loss is not None and (method, path) == ("POST", "/payments"):
            self.lost[loss] += 1
        return loss


@pytest.mark.faults
async def test_lost_answers_leave_one_charge_for_each_invoice(shop: Shop) -> None:
    """Workers also die in the middle of calls. Then all payers pay, and the ledger has every cent. [D-33, D-261]"""
    world, chance = shop.world, random.Random(SEED)  # noqa: S311 - repeatable on purpose
    for number in range(CUSTOMERS):
        await shop.bill(number, cents=chance.randint(500, 99_999))
    shop.double.fails = losses = Losses(SEED)
    for _ in range(3):
        dying = asyncio.create_task(run_until_idle(world.deps, [LANE["generation"], LANE["issuance"]]))
        await asyncio.sleep(0.5)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        await world.sql("UPDATE invoice SET lease_until = NULL")
    for step in range(1, 13):
        await world.advance(_after(minutes=50 * step))
    shop.double.fails = lambda _method, _path: None
    await world.advance(_after(hours=40))

    invoices = await world.invoices()
    assert len(invoices) == CUSTOMERS
    assert Counter(each["status"] for each in invoices) == {"issued": CUSTOMERS}
    assert Counter(len(shop.charges_of(each)) for each in invoices) == {1: CUSTOMERS}
    answers = losses.lost[Loss.ANSWER] + losses.lost[Loss.ERROR_AFTER] + losses.lost[Loss.JUNK]
    assert answers > CUSTOMERS / 5, losses.lost
    for invoice in invoices:
        [charge] = shop.charges_of(invoice)
        assert (charge["value"] * 100, charge["status"]) == (invoice["totalCents"], "PENDING")
        shop.account.pay(charge["id"])
        assert await shop.hook(charge) == 200
    await world.run()

    paid = await world.invoices()
    assert Counter(each["status"] for each in paid) == {"paid": CUSTOMERS}
    assert sum(each["paidCents"] for each in paid) == sum(
        each["value"] * 100 for each in shop.account.payments.values() if each["status"] == "RECEIVED"
    )
    assert await world.broken() == []


def _after(**time: int) -> str:
    return f"{NOW + timedelta(**time):%Y-%m-%dT%H:%M:%SZ}"


async def test_a_webhook_lets_the_engine_read_the_charge(shop: Shop) -> None:
    """A forged webhook changes nothing, because the engine reads the state from Asaas. [D-35 webhook, D-261]"""
    await shop.bill(1, cents=9990)
    await shop.world.run()
    [invoice] = await shop.world.invoices()
    [charge] = shop.charges_of(invoice)
    shown = (await shop.world.get(f"/v1/invoices/{invoice['id']}")).json["payment"]
    assert (shown["url"], shown["pixCode"][:6]) == (charge["invoiceUrl"], "000201")

    assert await shop.hook({**charge, "status": "RECEIVED"}) == 200
    await shop.world.run()
    assert [each["status"] for each in await shop.world.invoices()] == ["issued"]
    shop.account.pay(charge["id"])
    assert await shop.hook(charge, token=TOKEN[1:] + "x") == 404
    assert await shop.hook(charge) == 200
    await shop.world.run()
    [paid] = await shop.world.invoices()
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
