"""Accounts with many subscriptions, billed through gateways with different faults."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
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
from tests.faults.external_gateway import external_providers
from tests.faults.external_process import external, share_secrets
from tests.faults.gateway.adapter import ProviderGateway
from tests.faults.gateway.faults import GatewayFaults
from tests.faults.journal import JOURNAL_FILE, Journal
from tests.faults.simulator.gateway_state import OWN_ACCOUNT
from tests.support.operator import OPERATOR
from tests.support.world import Merchant, api_client, subscription_body

SUBSCRIBE_ALIKE = """
    WITH made AS (
        INSERT INTO customer (account_id, customer_id, external_ref, name, name_key, email, email_key,
            created_at)
        SELECT c.account_id, gen_random_uuid(), 'alike-' || n, c.name, c.name_key, c.email, c.email_key,
            c.created_at
        FROM subscription s JOIN customer c USING (account_id, customer_id), generate_series(1, $2::int) n
        WHERE s.subscription_id = $1
        RETURNING customer_id
    ), counted AS (
        UPDATE account_counter n SET customers = n.customers + $2, subscriptions_active = n.subscriptions_active + $2
        FROM subscription s WHERE s.subscription_id = $1 AND n.account_id = s.account_id
    ), subscribed AS (
        INSERT INTO subscription SELECT alike.* FROM subscription s, made,
            jsonb_populate_record(s, jsonb_build_object(
                'subscription_id', gen_random_uuid(), 'customer_id', made.customer_id
            )) alike
        WHERE s.subscription_id = $1
        RETURNING account_id, subscription_id, start_cycle, plan_version_id, started_at
    )
    INSERT INTO subscription_terms (account_id, subscription_id, number, from_cycle, plan_version_id, reason,
        changed_at)
    SELECT n.account_id, n.subscription_id, 1, n.start_cycle, n.plan_version_id, 'enrolled', n.started_at
    FROM subscribed n
"""
"""Makes `$2` copies of the subscription `$1` and of its customer. Only the original was created through the API."""

LATEST_FOUND_SECONDS = 60
"""The engine's look-ups find a charge if the gateway creates it at most this long after the request."""
PERIOD_MONTHS = 3
"""Billing period, so long that no subscription generates a second invoice before the run ends."""
PROVIDER_MODULE = "tests.faults.gateway.provider"
DUE_IN = timedelta(days=2)
"""Time until the first due date. Invoices are generated three days before it, and therefore immediately."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of gateway, the number of its accounts, and the total number of charges in these accounts.

    `idempotency` and `refunds` are the gateway's capabilities of the same names.
    """

    name: str
    idempotency: str
    refunds: str
    faults: GatewayFaults
    charges: int
    accounts: int = 1

    @property
    def creates_too_late(self) -> bool:
        """Return whether a delayed charge may appear only after the engine has requested another charge."""
        return self.faults.late_seconds > LATEST_FOUND_SECONDS


@dataclass(frozen=True, slots=True)
class World:
    """The accounts of the run and their gateways.

    `tables` is a superuser's connection pool. `account_kinds` gives the kind of gateway of each account.
    """

    url: str
    ring: str
    clock: FastClock
    deps: Deps
    journal: Journal
    tables: Any
    merchants: Sequence[Merchant]
    account_kinds: dict[UUID, Kind]
    connections: dict[UUID, str]
    gateway_urls: Sequence[str]
    client: httpx.AsyncClient

    @property
    def account_ids(self) -> Collection[UUID]:
        return self.account_kinds

    async def control(self, name: str, **query: object) -> Sequence[Any]:
        """Send the control request `name` to all gateways, and return their answers."""
        async with httpx.AsyncClient(timeout=60) as client:
            urls = [f"{url}/control/{name}" for url in self.gateway_urls]
            answers = await asyncio.gather(*(client.post(url, params=cast("Any", query)) for url in urls))
        return [each.raise_for_status().json() for each in answers]


@asynccontextmanager
async def open_world(
    url: str, folder: Path, *, clock: FastClock, kinds: Sequence[Kind]
) -> AsyncGenerator[World]:
    """Start the gateways, open the accounts and create subscriptions. Nothing is billed yet."""
    ring = new_key()
    share_secrets(folder, {})
    async with AsyncExitStack() as stack:
        gateways = [
            stack.enter_context(external(folder, clock=clock, faults=kind.faults, module=PROVIDER_MODULE))
            for kind in kinds
        ]
        providers = external_providers(gateways[0], clock=clock, gateway=ProviderGateway)
        deps = await stack.enter_async_context(open_engine(url, ring=ring, clock=clock, providers=providers))
        client = await stack.enter_async_context(api_client(deps))
        tables = await asyncpg.create_pool(url.replace("://fatura@", "://postgres@"), min_size=1, max_size=2)
        stack.push_async_callback(tables.close)
        journal = Journal(folder / JOURNAL_FILE)
        stack.callback(journal.close)
        world = World(url, ring, clock, deps, journal, tables, merchants := [], {}, {}, gateways, client)
        secrets: dict[str, list[str]] = {}
        for kind, gateway_url in zip(kinds, gateways, strict=True):
            for number in range(kind.accounts):
                # Only one account per kind has a webhook. Deliveries for all accounts would take most of the time.
                merchant, secret = await _subscribed(
                    world, kind, client, gateway_url=gateway_url, listens=number == 0
                )
                merchants.append(merchant)
                world.account_kinds[merchant.account_id] = kind
                secrets[str(merchant.account_id)] = [secret]
        share_secrets(folder, secrets)
        yield world


async def _subscribed(
    world: World, kind: Kind, client: httpx.AsyncClient, *, gateway_url: str, listens: bool
) -> tuple[Merchant, str]:
    """Open an account with a gateway and due subscriptions. If `listens` is true, register a webhook."""
    opened = await open_account(world.deps, name=kind.name, mode=Mode.SANDBOX, opened_by=OPERATOR)
    merchant = Merchant(world.deps, client, opened)
    settings = {"url": gateway_url, "idempotency": kind.idempotency, "refunds": kind.refunds}
    credentials = {"token": 0, "account": OWN_ACCOUNT}
    body = {"provider": "outside", "credentials": credentials, "settings": settings}
    connection_id = (await merchant.made("/v1/integration/gateways", body))["connectionId"]
    world.connections[merchant.account_id] = connection_id
    if listens:
        webhook = {"url": f"{gateway_url}/webhook/{merchant.account_id}"}
        assert (await merchant.put("/v1/integration/webhook", webhook)).status == 200
    plan = await merchant.plan(
        await merchant.product(4990), await merchant.product(11), periodMonths=PERIOD_MONTHS
    )
    terms = {
        "gatewayConnectionId": connection_id,
        "firstChargeDate": (local_date(world.clock()) + DUE_IN).isoformat(),
    }
    first = await merchant.made("/v1/subscriptions", subscription_body(plan, **terms))
    others = kind.charges // kind.accounts - 1
    await world.tables.execute(SUBSCRIBE_ALIKE, UUID(first["id"]), others)
    return merchant, opened.secret


def kinds(*, charges: int, few: int, accounts: int, seed: int) -> tuple[Kind, ...]:
    """Return the kinds of gateways.

    For each kind except "ten minutes late", the run limits the number of second charges.
    """
    lossy = GatewayFaults(
        lost=300, late=100, refused_before=50, unavailable=50, error=50, lookup_fails=100, push_fails=20,
        refuses_days=300, late_seconds=60, lag_seconds=30, seed=seed,
    )  # fmt: skip
    once = replace(lossy, knows_keys=True)
    return (
        Kind("looked up", "lookup", "lookup", lossy, charges, accounts),
        Kind("by key", "key", "key", once, few),
        Kind("by our id", "natural_id", "key", replace(once, refuses_repeats=True), few),
        Kind("ten minutes late", "lookup", "none", replace(lossy, late=300, late_seconds=600), few),
    )
