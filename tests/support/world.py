"""The `world` fixture's engine: the real ASGI application, lanes, sandbox gateway and test clock.

Lanes do not run by themselves. `advance` moves the test clock and does all work that becomes due on the way. `run`
runs lanes until they are idle.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx

from fatura import settings
from fatura.api.app import create_app, create_watch_app
from fatura.bootstrap import real_clock, wire
from fatura.domain.credentials import Mode
from fatura.store.accounts import accounts as stored_accounts
from fatura.store.db import Database, connect
from fatura.store.vault import Vault
from fatura.usecases.accounts import accounts, tag_key
from fatura.usecases.deps import Deps
from fatura.usecases.operations import checks
from fatura.workers.lanes import LANES, Lane
from fatura.workers.loop import run_batch
from tests.support.databases import as_owner
from tests.support.fatura_processes import KEY_RING
from tests.support.operator import OPERATOR
from tests.support.unlimited import LOOPBACK, UNLIMITED

Json = Any
NOW = datetime(2033, 11, 20, 15, tzinfo=UTC)
"""The time on every new sandbox account's clock."""
LANE = {lane.name: lane for lane in LANES}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: httpx.Headers

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def type(self) -> str:
        return self.json["type"]


class Merchant:
    def __init__(self, deps: Deps, client: httpx.AsyncClient, opened: accounts.OpenedAccount) -> None:
        self.deps = deps
        self._client = client
        self.account_id: UUID = opened.account_id
        self.api_key = opened.api_key

    async def call(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        key: str | None = "fresh",
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        """Call the API. A POST sends `key` as Idempotency-Key (by default a new key; if None, no key)."""
        sent = {"Authorization": f"Bearer {self.api_key}"}
        if method == "POST" and key is not None:
            sent["Idempotency-Key"] = str(uuid4()) if key == "fresh" else key
        if body is not None or content is not None:
            sent["Content-Type"] = "application/json"
            content = json.dumps(body).encode() if content is None else content
        response = await self._client.request(
            method, path, content=content, headers={**sent, **(headers or {})}
        )
        return Answer(response.status_code, response.content, response.headers)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Json = None, **options: Any) -> Answer:
        return await self.call("POST", path, body, **options)

    async def put(self, path: str, body: Json, **options: Any) -> Answer:
        return await self.call("PUT", path, body, **options)

    async def patch(self, path: str, body: Json, **options: Any) -> Answer:
        return await self.call("PATCH", path, body, **options)

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, **options)

    async def made(self, path: str, body: Json = None) -> Json:
        """Send a POST that must succeed, and return the response's JSON."""
        answer = await self.post(path, body)
        assert answer.status in {200, 201}, answer.body
        return answer.json

    async def product(self, cents: int = 9990, **fields: Json) -> Json:
        pricing = {"mode": "fixed", "monthlyPriceCents": cents}
        return await self.made("/v1/products", {"name": "Gym", "pricing": pricing, **fields})

    async def variable_product(self, cap_cents: int = 100_000, **fields: Json) -> Json:
        """Create a product whose price endpoint refuses connections."""
        pricing = {"mode": "endpoint", "url": "http://127.0.0.1:1/price", "capCents": cap_cents}
        return await self.made("/v1/products", {"name": "Usage", "pricing": pricing, **fields})

    async def plan(self, *items: Json, **fields: Json) -> Json:
        """Create a plan, by default of one new product. `items` may be products, which get no discounts."""
        return await self.made("/v1/plans", plan_body(*(items or (await self.product(),)), **fields))

    async def enroll(self, plan: Json, **fields: Json) -> Json:
        """Subscribe a new customer to a plan."""
        return await self.made("/v1/subscriptions", subscription_body(plan, **fields))

    async def connect(self, **gateway_settings: Json) -> Json:
        body = {"provider": "sandbox", "credentials": {}, "settings": gateway_settings}
        return await self.made("/v1/integration/gateways", body)

    async def set_up_gateway(self, **gateway_settings: Json) -> None:
        """Change the settings of the account's first connection."""
        connection_id = (await self.get("/v1/integration")).json["gateways"][0]["connectionId"]
        answer = await self.patch(f"/v1/integration/gateways/{connection_id}", {"settings": gateway_settings})
        assert answer.status == 200, answer.body

    async def advance(self, to: str | None = None, *, days: int | None = None) -> Json:
        """Advance the test clock, and do all work that becomes due on the way. `to` is an instant or a date."""
        body = {"to": to} if days is None else {"days": days}
        asked = asyncio.create_task(self.post("/v1/test-clock/advance", body))
        while not asked.done():
            await run_until_idle(self.deps, [LANE["test_clock"]])
            await asyncio.sleep(0.002)
        answer = await asked
        assert answer.status == 200, answer.body
        return answer.json

    async def run(self, *lanes: str) -> int:
        """Run all lanes, or the named lanes, until they are idle. With the lane `push`, the lane `probe` runs too."""
        named = [*lanes, "probe"] if "push" in lanes else lanes
        return await run_until_idle(self.deps, [LANE[name] for name in named] or LANES)

    async def all(self, path: str) -> list[Json]:
        """Return all records of a list, oldest first."""
        records: list[Json] = []
        page, pages = 1, 1
        while page <= pages:
            separator = "&" if "?" in path else "?"
            answer = (await self.get(f"{path}{separator}page={page}&pageSize=100")).json
            records += answer["data"]
            page, pages = page + 1, answer["pagination"]["totalPages"]
        return records[::-1]

    async def invoices(self, subscription: Json | None = None) -> list[Json]:
        """Return all invoices, or the invoices of one subscription, oldest first."""
        found = await self.all("/v1/invoices")
        return [
            each for each in found if subscription is None or each["subscriptionId"] == subscription["id"]
        ]

    async def events(self, *types: str) -> list[Json]:
        """Return all events, or the events of the given types, oldest first."""
        found = await self._followed("/v1/events?limit=200")
        return [event for event in found if not types or event["type"] in types]

    async def audit(self, *actions: str) -> list[Json]:
        """Return all audit entries, or the entries of the given actions, oldest first."""
        found = await self._followed("/v1/audit?limit=200")
        return [entry for entry in found if not actions or entry["action"] in actions]

    async def _followed(self, path: str) -> list[Json]:
        """Follow the cursor of a stream to its end."""
        found: list[Json] = []
        cursor = "0"
        while answer := (await self.get(f"{path}&cursor={cursor}")).json:
            if not answer["data"]:
                break
            found += answer["data"]
            cursor = answer["nextCursor"]
        return found


class World(Merchant):
    """The engine, its first sandbox account, and access to the database."""

    def __init__(
        self, deps: Deps, client: httpx.AsyncClient, opened: accounts.OpenedAccount, database_url: str
    ) -> None:
        super().__init__(deps, client, opened)
        self.database_url = database_url

    async def another(self, mode: Mode = Mode.SANDBOX) -> Merchant:
        opened = await open_account(self.deps, mode)
        return Merchant(self.deps, self._client, opened)

    async def sql(self, statement: str, *values: object) -> Sequence[asyncpg.Record]:
        """Run a statement as the owner of the tables, restricted to this account by Row Level Security."""
        connection = await asyncpg.connect(as_owner(self.database_url))
        try:
            await connection.execute(f"SET app.account = '{self.account_id}'")
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()

    async def broken(self) -> list[str]:
        """Return the names of the invariants of `fatura check` that any account violates."""
        return [
            finding.invariant.name
            for account_id in await checks.all_accounts(self.deps)
            for finding in await checks.findings(self.deps, account_id)
        ]


async def open_account(deps: Deps, mode: Mode) -> accounts.OpenedAccount:
    """Open an account. A sandbox account's clock is set to NOW, and its connection is swept in the night after NOW."""
    opened = await accounts.open_account(deps, name="Test", mode=mode, opened_by=OPERATOR)
    if mode is Mode.SANDBOX:
        async with deps.db.transaction(opened.account_id) as tx:
            await stored_accounts.set_clock_offset(tx, NOW - deps.clock())
            swept = "UPDATE connection_sweep s SET swept_to = $2, next_sweep_at = $3 WHERE s.account_id = $1"
            await tx.execute(swept, NOW, NOW + timedelta(hours=12))
    return opened


@asynccontextmanager
async def open_world(database_url: str, **environment: str) -> AsyncGenerator[World]:
    """Connect the engine to a database and open its first sandbox account."""
    db = await connect(database_url, max_connections=20)
    try:
        async with world_on(db, database_url, **environment) as world:
            yield world
    finally:
        await db.close()


@asynccontextmanager
async def world_on(db: Database, database_url: str, **environment: str) -> AsyncGenerator[World]:
    """Start an engine on the connection pool `db`, and open its first sandbox account."""
    read = settings.read({**UNLIMITED, "FATURA_OUTBOUND_ALLOW": LOOPBACK, **environment})
    vault = Vault([KEY_RING])
    tagger = await tag_key.load(db, vault)
    deps = wire(read, db, vault=vault, tagger=tagger, clock=real_clock, notify=ignore_notification)
    deps.checks.keep_seconds = 0  # keep no result, because tests change data between checks
    async with api_client(deps) as client:
        opened = await open_account(deps, Mode.SANDBOX)
        yield World(deps, client, opened, database_url)
        await deps.merchants.close()
        await deps.provider_client.close()


def api_client(deps: Deps) -> httpx.AsyncClient:
    """Return a client that calls the API in this process. The API answers an unexpected exception with 500."""
    transport = httpx.ASGITransport(create_app(deps), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://fatura.test")


async def scrape(deps: Deps) -> str:
    """Return the metrics, as the port for monitoring serves them."""
    transport = httpx.ASGITransport(create_watch_app(deps))
    async with httpx.AsyncClient(transport=transport, base_url="http://fatura.test") as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    return answer.text


def ignore_notification(_lane: str) -> None:
    """Ignore notifications, because tests run the lanes themselves."""


async def eventually(holds: Callable[[], bool], *, seconds: float = 10) -> None:
    """Wait until a condition holds. Fails after a time-out."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


def item(product: Json, *discounts: tuple[int, int, int | None]) -> Json:
    """Return a plan item. Each discount is a tuple (percent, fromCycle, toCycle)."""
    rules = [{"percent": percent, "fromCycle": first, "toCycle": last} for percent, first, last in discounts]
    return {"productId": product["id"], "discounts": rules}


def plan_body(*items: Json, **fields: Json) -> Json:
    """Return the body of a monthly plan that is paid by pix. `items` may be products, which get no discounts."""
    listed = [each if "productId" in each else item(each) for each in items]
    return {"name": "Plan", "periodMonths": 1, "defaultPaymentMethod": "pix", "items": listed, **fields}


def subscription_body(plan: Json, **fields: Json) -> Json:
    """Return the request body that subscribes a new customer to a plan."""
    customer = {"externalRef": f"customer-{uuid4()}", "name": "Ana", "email": "ana@example.com"}
    return {"planId": plan["id"], "customer": customer, **fields}


def rows(table: str) -> list[tuple[str, ...]]:
    """Parse a text table with a header line and `|` between columns. Return tuples of text, without the header."""
    lines = [line for line in table.strip().splitlines() if line.strip()]
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines[1:]]


def columns(records: Sequence[Json], *names: str) -> list[tuple[str, ...]]:
    """Return the named fields of each record as a tuple of text, to compare with `rows`."""
    return [tuple(str(record[name]) for name in names) for record in records]


async def run_until_idle(deps: Deps, lanes: Sequence[Lane]) -> int:
    """Run the lanes until none has due work. Return how many units of work they did."""
    total = 0
    while True:
        done = sum([await run_batch(deps, lane, each) for lane in lanes for each in await lane.due(deps)])
        if not done:
            return total
        total += done
