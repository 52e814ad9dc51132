"""The engine bills with a bank's Pix API over HTTPS, while requests and answers are lost (D-33, D-262)."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.pix import settings
from fatura.gateways.adapters.pix.adapter import PixGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Capabilities
from fatura.gateways.provider import Provider
from tests.contract.pix_provider import PixProvider, credentials_of
from tests.doubles.pix.book import Account
from tests.doubles.pix.server import Loss, PixDouble, open_double
from tests.support.world import LANE, NOW, World, api_client, run_until_idle

CUSTOMERS = 200
SEED = 262


class HastyPix(PixGateway):
    """An adapter without a budget of polls, because a test clock would wait for it in real time."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), polls_per_second=None)


@dataclass(slots=True)
class Shop:
    """A sandbox account that may connect to the simulated bank, so that its test clock can be moved."""

    world: World
    double: PixDouble
    account: Account
    connection_id: str

    async def bill(self, number: int, *, cents: int) -> None:
        plan = await self.world.plan(await self.world.product(cents))
        customer = {"externalRef": f"c-{number}", "name": f"Ana {number}", "document": "52998224725"}
        await self.world.enroll(
            plan,
            customer={**customer, "email": "ana@example.com"},
            gatewayConnectionId=self.connection_id,
        )


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[Shop]:
    async with open_double(lambda: NOW) as double:
        client = ProviderClient(is_exempt=True, new_ssl_context=double.client_context)
        factory = partial(HastyPix, client, banks={"efi": PixProvider(double, client).bank()})
        pix = Provider(factory, frozenset({Mode.SANDBOX}), settings.FIELDS, settings.CREDENTIALS)
        deps = replace(world.deps, providers={**world.deps.providers, "pix": pix})
        account = double.open_account()
        async with api_client(deps) as http:
            world.deps, world._client = deps, http
            body = {
                "provider": "pix",
                "credentials": credentials_of(double, account),
                "settings": {"bank": "efi", "pixKey": account.pix_key},
            }
            made = await world.made("/v1/integration/gateways", body)
            yield Shop(world, double, account, made["connectionId"])
        await client.close()


class Losses:
    """Lets 30 % of the answers to new charges be lost, and some requests and reads. Counts the lost answers."""

    def __init__(self) -> None:
        self.chance = random.Random(SEED)  # noqa: S311 - repeatable on purpose
        self.answers = 0

    def __call__(self, method: str, path: str) -> Loss | None:
        kinds = [Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK, Loss.REQUEST, Loss.RATE, Loss.ERROR_BEFORE, None]
        is_new = method == "PUT" and path.startswith("/cobv/")
        weights = [10, 10, 10, 5, 5, 5, 55] if is_new else [1, 2, 2, 1, 3, 3, 88]
        [loss] = self.chance.choices(kinds, weights)
        self.answers += is_new and loss in kinds[:3]
        return loss


@pytest.mark.faults
async def test_lost_answers_leave_one_charge_for_each_invoice(shop: Shop) -> None:
    """Workers also die in the middle of calls. Then all payers pay, and the ledger has every cent. [D-33, D-262]"""
    world, chance = shop.world, random.Random(SEED)  # noqa: S311 - repeatable on purpose
    for number in range(CUSTOMERS):
        await shop.bill(number, cents=chance.randint(1, 99_999))
    shop.double.fails = losses = Losses()
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

    invoices, charges = await world.invoices(), shop.account.charges
    assert losses.answers > CUSTOMERS / 5
    assert Counter(each["status"] for each in invoices) == {"issued": CUSTOMERS}
    assert len(charges) == len(invoices) == CUSTOMERS
    for invoice in invoices:
        stored = charges[invoice["gatewayInvoiceId"]]
        assert stored["valor"]["original"].replace(".", "").lstrip("0") == str(invoice["totalCents"])
    for txid in charges:
        shop.account.pay(txid)
    await world.advance(_after(days=5))
    paid = await world.invoices()
    assert Counter(each["status"] for each in paid) == {"paid": CUSTOMERS}
    assert sum(each["paidCents"] for each in paid) == sum(each["totalCents"] for each in invoices)
    assert await world.broken() == []


def _after(**time: int) -> str:
    return f"{NOW + timedelta(**time):%Y-%m-%dT%H:%M:%SZ}"
