"""A shop that bills with a simulated payment provider, while requests and answers are lost (D-33)."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

from fatura.domain.credentials import Mode
from fatura.gateways.port import Capabilities, ConnectionConfig, Gateway, GatewayFactory, Webhook
from fatura.gateways.provider import Provider
from tests.doubles.server import Double, Loss
from tests.support.world import LANE, NOW, Merchant, World, api_client, run_until_idle

CUSTOMERS = 1_000
_KINDS = [Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK, Loss.REQUEST, Loss.RATE, Loss.ERROR_BEFORE, None]
_OF_WRITES = [10, 10, 10, 5, 5, 5, 55]
_OF_READS = [1, 2, 2, 1, 3, 3, 88]


@dataclass(slots=True)
class Shop:
    """A sandbox account that may connect to the simulated provider, so that its test clock can be moved."""

    world: World
    double: Double
    connection_id: str

    async def bill(self, number: int, plan: Any) -> None:
        await bill(self.world, self.connection_id, number, plan)

    async def hook(self, webhook: Webhook) -> int:
        return await hook(self.world, self.connection_id, webhook)


async def bill(merchant: Merchant, connection_id: str, number: int, plan: Any, **terms: Any) -> None:
    """Subscribe a customer, whose charges are made on this connection."""
    customer = {
        "externalRef": f"c-{number}",
        "name": f"Ana {number}",
        "document": "52998224725",
        "email": f"ana{number}@example.com",
    }
    await merchant.enroll(plan, customer=customer, gatewayConnectionId=connection_id, **terms)


async def hook(merchant: Merchant, connection_id: str, webhook: Webhook) -> int:
    """Send a webhook of the provider, and return the status of the answer."""
    path = f"/gateways/{merchant.account_id}/{connection_id}/webhook?{webhook.query}"
    return (await merchant.call("POST", path, content=webhook.body, headers=webhook.headers)).status


def without_poll_budget(provider: Provider) -> Provider:
    """Return the provider with adapters that have no budget of polls, because the tests' clocks would wait for it."""
    return replace(provider, factory=partial(_hasty, provider.factory))


def _hasty(factory: GatewayFactory, config: ConnectionConfig) -> Gateway:
    return cast("Gateway", _Hasty(factory(config)))


class _Hasty:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)

    def capabilities(self) -> Capabilities:
        return replace(self._gateway.capabilities(), polls_per_minute=None)


@asynccontextmanager
async def opened_shop(
    world: World, double: Double, name: str, provider: Provider, connection: Mapping[str, Any]
) -> AsyncGenerator[Shop]:
    """Connect a sandbox account to the simulated provider. `connection` has its `settings` and `credentials`."""
    provider = without_poll_budget(replace(provider, modes=frozenset({Mode.SANDBOX})))
    deps = replace(world.deps, providers={**world.deps.providers, name: provider})
    async with api_client(deps) as http:
        world.deps, world._client = deps, http
        made = await world.made("/v1/integration/gateways", {"provider": name, **connection})
        yield Shop(world, double, made["connectionId"])


async def bill_once(shop: Shop, *, secret: str) -> Any:
    """Bill one customer, and return the invoice. Check that the integration does not show the webhook's `secret`."""
    world = shop.world
    assert secret not in str((await world.get("/v1/integration")).json)
    await shop.bill(1, await world.plan(await world.product(9990)))
    await world.run()
    [invoice] = await world.invoices()
    return invoice


class Losses:
    """Lets 30 % of the answers to writes be lost, and some requests and reads.

    `answers` counts the lost answers to new charges, whose requests have the method and path `new_charge`. `asked`
    counts these requests.
    """

    def __init__(self, seed: int, new_charge: Callable[[str, str], bool]) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.new_charge = new_charge
        self.answers = self.asked = 0

    def __call__(self, method: str, path: str) -> Loss | None:
        [loss] = self.chance.choices(_KINDS, _OF_READS if method == "GET" else _OF_WRITES)
        is_new = self.new_charge(method, path)
        self.asked += is_new
        self.answers += is_new and loss in _KINDS[:3]
        return loss


async def bill_through_losses(shop: Shop, losses: Losses, *, least_cents: int) -> Sequence[Any]:
    """Bill 1,000 customers while answers are lost and workers die in the middle of calls. Return the invoices.

    Afterwards, nothing is lost any more, and the clock moves until each invoice is issued.
    """
    world = shop.world
    amounts = losses.chance.choices(range(least_cents, 100_000), k=20)
    plans = [await world.plan(await world.product(cents)) for cents in amounts]
    for number in range(CUSTOMERS):
        await shop.bill(number, plans[number % len(plans)])
    shop.double.fails = losses
    for _ in range(5):
        dying = asyncio.create_task(run_until_idle(world.deps, [LANE["generation"], LANE["issuance"]]))
        await asyncio.sleep(0.5)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        await world.sql("UPDATE invoice SET lease_until = NULL")
    for step in range(1, 13):
        await world.advance(after(minutes=50 * step))
    shop.double.fails = lambda _method, _path: None
    await world.advance(after(hours=40))
    invoices = await world.invoices()
    assert Counter(each["status"] for each in invoices) == {"issued": CUSTOMERS}
    assert losses.answers > CUSTOMERS / 5
    return invoices


async def assert_all_paid(world: World, ledger_cents: int) -> None:
    """Check that each invoice is paid, and that all payments together are the cents of the provider's ledger."""
    paid = await world.invoices()
    assert Counter(each["status"] for each in paid) == {"paid": CUSTOMERS}
    assert sum(each["paidCents"] for each in paid) == sum(each["totalCents"] for each in paid) == ledger_cents
    assert await world.broken() == []


def after(**time: int) -> str:
    return f"{NOW + timedelta(**time):%Y-%m-%dT%H:%M:%SZ}"
