"""One account for each simulated provider, with many subscriptions."""

import asyncio
import random
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from fatura.domain.calendar import local_date
from fatura.domain.credentials import Mode
from fatura.store.vault import new_key
from fatura.usecases.accounts.accounts import open_account
from fatura.usecases.deps import Deps
from tests.faults.clock import FastClock
from tests.faults.engine import open_engine
from tests.faults.providers.adapters import Places, open_at
from tests.faults.providers.doubles import Simulated, open_all, places
from tests.support.databases import as_superuser
from tests.support.operator import OPERATOR
from tests.support.provider_shop import bill
from tests.support.world import Merchant, api_client

AMOUNTS = 20
"""Number of different amounts of an account's charges."""
PERIOD_MONTHS = 3
"""Billing period, so long that no subscription generates a second invoice before the run ends."""
DUE_IN = timedelta(days=3)
"""Time until the first due date. Invoices are generated three days before it, and therefore immediately."""


@dataclass(frozen=True, slots=True)
class Shop:
    """A live account that bills with one simulated provider."""

    simulated: Simulated
    merchant: Merchant
    connection_id: str


@dataclass(frozen=True, slots=True)
class World:
    """The accounts of the run. `tables` is a superuser's connection pool."""

    url: str
    ring: str
    clock: FastClock
    deps: Deps
    tables: Any
    places: Places
    shops: Sequence[Shop]

    @property
    def account_ids(self) -> Collection[UUID]:
        return [each.merchant.account_id for each in self.shops]


@asynccontextmanager
async def open_world(url: str, *, clock: FastClock, charges: int, seed: int) -> AsyncGenerator[World]:
    """Start the providers, open the accounts and create subscriptions. Nothing is billed yet."""
    ring = new_key()
    async with AsyncExitStack() as stack:
        simulated = await stack.enter_async_context(open_all(clock, seed=seed))
        at = places(simulated)
        deps = await stack.enter_async_context(
            open_engine(url, ring=ring, clock=clock, providers=open_at(at))
        )
        deps.checks.keep_seconds = 0
        client = await stack.enter_async_context(api_client(deps))
        tables = await asyncpg.create_pool(as_superuser(url), min_size=1, max_size=2)
        stack.push_async_callback(tables.close)
        shops = await asyncio.gather(
            *(_subscribed(deps, client, each, charges=charges, seed=seed) for each in simulated)
        )
        yield World(url, ring, clock, deps, tables, at, shops)


async def _subscribed(
    deps: Deps, client: httpx.AsyncClient, simulated: Simulated, *, charges: int, seed: int
) -> Shop:
    """Open an account, connect it to the provider, and subscribe customers."""
    opened = await open_account(deps, name=simulated.name, mode=Mode.LIVE, opened_by=OPERATOR)
    merchant = Merchant(deps, client, opened)
    body = {"provider": simulated.name, **simulated.connection}
    connection_id = (await merchant.made("/v1/integration/gateways", body))["connectionId"]
    amounts = random.Random(seed).choices(range(simulated.least_cents, 100_000), k=AMOUNTS)  # noqa: S311 - repeatable
    plans = [
        await merchant.plan(await merchant.product(cents), periodMonths=PERIOD_MONTHS) for cents in amounts
    ]
    due_on = (local_date(deps.clock()) + DUE_IN).isoformat()
    for number in range(charges):
        await bill(merchant, connection_id, number, plans[number % AMOUNTS], firstChargeDate=due_on)
    return Shop(simulated, merchant, connection_id)
