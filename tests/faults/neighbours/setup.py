"""Merchants with healthy endpoints, merchants with hanging or failing endpoints, and real worker processes."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from fatura import settings
from fatura.bootstrap import wire
from fatura.domain.credentials import Mode
from fatura.store.db import connect
from fatura.store.notify import Notifier
from fatura.store.vault import Vault
from fatura.usecases.accounts import accounts, tag_key
from fatura.usecases.deps import Deps
from tests.faults import breaks
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.databases import as_owner
from tests.support.fatura_processes import KEY_RING, environment, free_port, running
from tests.support.operator import OPERATOR
from tests.support.populated import connected
from tests.support.push_steps import INSERT_EVENTS
from tests.support.receiver import OK, Answerer, Received, Receiver, Reply, always, open_receiver
from tests.support.unlimited import LOOPBACK, UNLIMITED
from tests.support.world import Json, Merchant, api_client, item

WORKERS = 2
HANGING_TOO = 4
"""Number of merchants with the hanging endpoint, not counting the first one, which has a larger backlog."""
DRIP_SECONDS = 1.0
NOISE = """
    UPDATE webhook SET disabled_at = NULL, failures = 0, failing_since = NULL, real_failing_since = NULL,
        next_attempt_at = NULL, at_once = 64
    WHERE account_id = $1
"""
DUE_AGAIN = """
    UPDATE delivery SET next_attempt_at = now(), failures = 0, first_failed_at = NULL, failed_at = NULL
    WHERE account_id = $1 AND next_attempt_at > now()
"""
QUIET = "UPDATE webhook SET disabled_at = now() WHERE account_id = $1"


@dataclass(slots=True)
class Setup:
    """The merchants, and what their endpoints have received.

    `arrived` has the arrival time of each event, by event id. `asked` has the arrival time of each price call, by item
    id.
    """

    deps: Deps
    client: httpx.AsyncClient
    connection: Any
    database_url: str
    arrived: dict[str, datetime] = field(default_factory=dict[str, datetime])
    asked: dict[str, datetime] = field(default_factory=dict[str, datetime])
    healthy: list[tuple[Merchant, Json]] = field(default_factory=list[tuple[Merchant, Json]])
    holding: list[Merchant] = field(default_factory=list[Merchant])
    failing: list[Merchant] = field(default_factory=list[Merchant])
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def merchant(self) -> Merchant:
        """Open an account whose clock shows real time."""
        opened = await accounts.open_account(
            self.deps, name="Neighbour", mode=Mode.SANDBOX, opened_by=OPERATOR
        )
        return Merchant(self.deps, self.client, opened)

    async def sql(self, merchant: Merchant, statement: str, *values: object) -> Sequence[asyncpg.Record]:
        """Run a statement whose `$1` is the account id."""
        await self.connection.execute(f"SET app.account = '{merchant.account_id}'")
        return await self.connection.fetch(statement, merchant.account_id, *values)

    async def add_healthy(self, url: str, price_url: str) -> None:
        merchant = await self.merchant()
        await merchant.put("/v1/integration/webhook", {"url": url})
        pricing = {"mode": "endpoint", "url": price_url, "capCents": 100_000}
        variable = await merchant.product(pricing=pricing)
        plan = await merchant.plan(item(await merchant.product()), item(variable))
        self.healthy.append((merchant, plan))

    @property
    def unhealthy(self) -> list[Merchant]:
        return self.holding + self.failing

    async def add_unhealthy(self, url: str, *, backlog: int) -> Merchant:
        """Add a merchant with a disabled webhook and `backlog` undelivered events, three per invoice."""
        merchant = await self.merchant()
        await merchant.put("/v1/integration/webhook", {"url": url})
        await self.sql(merchant, QUIET)
        await self.sql(merchant, INSERT_EVENTS, backlog, max(backlog // 3, 1), "invoice.payment_unexpected")
        return merchant

    async def add_bulk(self, count: int) -> Merchant:
        merchant = await self.merchant()
        plan = await merchant.plan()
        await self.sql(merchant, SUBSCRIBE_MANY, plan["id"], count)
        # without statistics, PostgreSQL plans queries as if the tables were small, until autovacuum runs a minute later
        async with connected(as_owner(self.database_url)) as owner:
            await owner.execute("ANALYZE customer, subscription")
        await self.deps.db.notify("generation")
        return merchant

    async def begin_noise(self) -> None:
        """Enable the webhooks of all unhealthy merchants with maximum concurrency, and make failed deliveries due."""
        await self._reset_backoff(self.unhealthy)

    async def renew_noise(self) -> None:
        """Reset the back-off of the hanging endpoints, so that the engine calls them again without delay.

        The back-off of the `failing` merchants stays unchanged.
        """
        await self._reset_backoff(self.holding)

    async def _reset_backoff(self, unhealthy: Sequence[Merchant]) -> None:
        for each in unhealthy:
            await self.sql(each, NOISE)
            await self.sql(each, DUE_AGAIN)
        await self.deps.db.notify("push")

    async def end_noise(self) -> None:
        """Disable the webhooks of all unhealthy merchants, and end the calls that their endpoints hold open."""
        for each in self.unhealthy:
            await self.sql(each, QUIET)
        self.held.set()
        self.held = asyncio.Event()

    def take_event(self, received: Received) -> Reply:
        self.arrived.setdefault(received.json["id"], datetime.now(UTC))
        return OK

    def take_price_call(self, received: Received) -> Reply:
        self.asked.setdefault(received.json["pricingRequestId"], datetime.now(UTC))
        return Reply(200, b'{"amount":100}')

    async def hang(self, _: Received) -> Reply:
        await self.held.wait()
        return Reply(503)


@asynccontextmanager
async def open_setup(database_url: str) -> AsyncGenerator[Setup]:
    """Run the API in this process. The function `workers` runs the workers in their own processes."""
    read = settings.read({**UNLIMITED, "FATURA_OUTBOUND_ALLOW": LOOPBACK})
    db = await connect(database_url, max_connections=10)
    connection: Any = await asyncpg.connect(database_url)
    try:
        vault = Vault([KEY_RING])
        tagger = await tag_key.load(db, vault)
        deps = wire(read, db, vault=vault, tagger=tagger, notify=Notifier(db))
        async with api_client(deps) as client:
            yield Setup(deps, client, connection, database_url)
            await deps.merchants.close()
    finally:
        await connection.close()
        await db.close()


@asynccontextmanager
async def endpoints(setup: Setup, *, healthy: int, backlog: int) -> AsyncGenerator[Receiver]:
    """Start all endpoints, and open the accounts of their merchants. Yield the endpoint that hangs."""
    async with (
        _answering(setup.take_event) as events,
        _answering(setup.take_price_call) as prices,
        _answering(setup.hang) as hanging,
        _answering(always(503)) as refusing,
        _dripping(setup) as drip_url,
    ):
        for _ in range(healthy):
            await setup.add_healthy(events.url, prices.url)
        setup.holding.append(await setup.add_unhealthy(hanging.url, backlog=backlog))
        for url in (*([hanging.url] * HANGING_TOO), drip_url):
            setup.holding.append(await setup.add_unhealthy(url, backlog=backlog // 10))
        for url in (refusing.url, f"http://127.0.0.1:{free_port()}/closed"):
            setup.failing.append(await setup.add_unhealthy(url, backlog=backlog // 10))
        try:
            yield hanging
        finally:
            setup.held.set()


@asynccontextmanager
async def _answering(answer: Answerer) -> AsyncGenerator[Receiver]:
    async with open_receiver() as receiver:
        receiver.answer = answer
        yield receiver


@asynccontextmanager
async def _dripping(setup: Setup) -> AsyncGenerator[str]:
    """Run an endpoint that sends its response byte by byte, for longer than the engine waits."""

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = setup.held
        try:
            while not held.is_set():
                writer.write(b"H")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(held.wait(), DRIP_SECONDS)
        except ConnectionError:
            return  # the caller has closed the connection
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/drip"


@contextmanager
def workers(database_url: str, folder: Path) -> Generator[None]:
    variables = {"FATURA_OUTBOUND_ALLOW": LOOPBACK, "FATURA_LOG_LEVEL": "error"}
    env = environment(database_url, **variables, **breaks.environment())
    with ExitStack() as stack:
        for number in range(WORKERS):
            output = folder / f"worker-{number}.log"
            stack.enter_context(running("worker", env=env, output=output, module="tests.faults.breakable"))
        yield
