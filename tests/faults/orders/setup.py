"""The database and the two engines of all trials. Before each trial, the rows of the fixture's account are restored."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import httpx
import structlog.testing

from fatura.bootstrap import wire
from fatura.domain.credentials import Mode
from fatura.store.db import Database, Tx, connect
from fatura.store.invariants import INVARIANTS, offenders
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import load_account
from tests.faults.engine import OnClock
from tests.faults.orders.stepping import Stepper
from tests.faults.orders.stepping_connection import open_whole
from tests.support.populated import columns_of_tables
from tests.support.price_server import PriceServer, price_server
from tests.support.receiver import Receiver, open_receiver
from tests.support.world import LANE, NOW, Json, Merchant, World, api_client, open_account, open_world

Rows = Mapping[str, list[Json]]
START = NOW + timedelta(minutes=10)
"""The account's time at the start of a trial, later than all instants of the fixture."""
TICK = timedelta(milliseconds=1)
"""Clock advance per step, so that later writes have later instants."""

OF_WORKERS = "due_work_is_claimed_in_an_hour"
"""The name of an invariant that is not checked: no workers run, so due work remains."""


class SteppedClock:
    """A clock that shows the real time of the last reset, plus TICK for every step since then."""

    def __init__(self, stepper: Stepper) -> None:
        self.base = datetime.now(UTC)
        self._stepper = stepper

    def __call__(self) -> datetime:
        return self.base + len(self._stepper.trace) * TICK


@dataclass(slots=True)
class Fixture:
    """An account before the two operations begin: its API access, ids and saved rows."""

    merchant: Merchant
    api_key: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    saved: Rows = field(default_factory=dict[str, list[Json]])

    @property
    def last_event(self) -> int:
        return max((row["sequence"] for row in self.saved["event"]), default=0)


@dataclass(frozen=True, slots=True)
class FixtureBuilder:
    """What a fixture function uses: the account, the merchant's endpoints, and a superuser's connection `root`."""

    merchant: Merchant
    prices: PriceServer
    receiver: Receiver
    root: "asyncpg.Connection[Any]"


MakeFixture = Callable[[FixtureBuilder], Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class Setup:
    """The database, the stepper, and two sides: the engines that run the operations `a` and `b`.

    Each engine has its own connection pool.
    """

    world: World
    root: "asyncpg.Connection[Any]"
    stepper: Stepper
    clock: SteppedClock
    sides: Mapping[str, tuple[Deps, httpx.AsyncClient]]
    prices: PriceServer
    receiver: Receiver
    checks: Any
    """The invariants that need neither the time nor the key ring, as one prepared statement."""

    async def make(self, make_fixture: MakeFixture) -> Fixture:
        """Open an account, create the fixture in it, and save its rows."""
        opened = await open_account(self.world.deps, Mode.SANDBOX)
        merchant = Merchant(self.world.deps, self.world._client, opened)
        builder = FixtureBuilder(merchant, self.prices, self.receiver, self.root)
        with structlog.testing.capture_logs():
            facts = await make_fixture(builder)
        await self.root.execute("SELECT saved.save($1)", opened.account_id)
        return Fixture(merchant, opened.api_key, facts, await self.rows(opened.account_id))

    def merchant(self, side: str, fixture: Fixture) -> Merchant:
        """Return a merchant that sends requests for the fixture's account to the engine of `side`."""
        deps, client = self.sides[side]
        merchant = Merchant.__new__(Merchant)
        merchant.deps, merchant._client = deps, client
        merchant.account_id, merchant.api_key = fixture.merchant.account_id, fixture.api_key
        return merchant

    async def reset(self, fixture: Fixture) -> None:
        """Restore the account's saved rows, set its clock to START, and forget the calls to its endpoints."""
        self.stepper.trace.clear()
        self.clock.base = datetime.now(UTC)
        offset = START - self.clock.base
        await self.root.execute("SELECT saved.put_back($1, $2)", fixture.merchant.account_id, offset)
        self.prices.calls.clear()
        self.receiver.received.clear()

    async def run_lane(self, fixture: Fixture, lane: str) -> None:
        """Run one lane until no work is due."""
        merchant = self.merchant("a", fixture)
        account = await load_account(merchant.deps, merchant.account_id)
        while await LANE[lane].run(merchant.deps, account):
            pass

    async def rows(self, account_id: UUID) -> Rows:
        return json.loads(await self.root.fetchval("SELECT saved.rows($1)", account_id))

    async def violated(self, account_id: UUID) -> list[str]:
        violated = [row["name"] for row in await self.checks.fetch(account_id)]
        tx, key_ids = Tx(self.root, account_id), self.world.deps.vault.key_ids
        violated += [
            each.name
            for each in INVARIANTS
            if each.needs is not None
            and await offenders(tx, each, limit=1, real_now=self.clock(), key_ids=key_ids)
        ]
        return [each for each in violated if each != OF_WORKERS]


@asynccontextmanager
async def open_setup(database_url: str) -> AsyncGenerator[Setup]:
    """Open both engines on a migrated database. The server must have the settings `stepping.LOCK_SETTINGS`."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(open_world(database_url))
        prices = await stack.enter_async_context(price_server())
        receiver = await stack.enter_async_context(open_receiver())
        root = await asyncpg.connect(database_url.replace("://fatura@", "://postgres@"))
        stack.push_async_callback(root.close)
        await _prepare_saving(root)
        stepper = Stepper(root)
        clock = SteppedClock(stepper)
        sides = {
            name: await stack.enter_async_context(_side(world, database_url, stepper, clock=clock))
            for name in ("a", "b")
        }
        checks = await root.prepare(
            " UNION ALL ".join(
                f"(SELECT '{each.name}' AS name FROM ({each.sql}) x LIMIT 1)"  # noqa: S608 - our own statements
                for each in INVARIANTS
                if each.needs is None
            )
        )
        yield Setup(world, root, stepper, clock, sides, prices, receiver, checks)


@asynccontextmanager
async def _side(
    world: World, database_url: str, stepper: Stepper, *, clock: SteppedClock
) -> AsyncGenerator[tuple[Deps, httpx.AsyncClient]]:
    db = await connect(database_url, max_connections=2, connection_class=stepper.connection_class)
    await open_whole(db, 2)
    # OnClock returns the time without a query to PostgreSQL, which would be an additional, unpredictable step
    on_clock = cast("Database", OnClock(db, clock))
    vault, tagger = world.deps.vault, world.deps.tagger
    deps = wire(
        world.deps.settings, on_clock, vault=vault, tagger=tagger, clock=clock, notify=_drop_notification
    )
    try:
        async with api_client(deps) as client:
            yield deps, client
        await deps.merchants.close()
    finally:
        await db.close()


def _drop_notification(_lane: str) -> None:
    """Ignore the engine's notifications to its lanes, because a trial starts each operation itself."""


async def _prepare_saving(root: "asyncpg.Connection[Any]") -> None:
    """Create SQL functions that save, restore and read an account's rows. Restoring fires no triggers."""
    tables = await columns_of_tables(root)
    assert len(tables) > 20, tables
    copies = "".join(f"CREATE TABLE saved.{each} (LIKE public.{each});" for each in tables)
    save = "".join(f"INSERT INTO saved.{each} SELECT * FROM {each} WHERE account_id = $1;" for each in tables)  # noqa: S608 - our own tables
    put_back = "".join(
        f"DELETE FROM {each} WHERE account_id = $1;"  # noqa: S608 - our own tables
        f"INSERT INTO {each} ({named}) SELECT {named} FROM saved.{each} WHERE account_id = $1;"
        for each, named in tables.items()
    )
    rows = ",".join(
        f"'{each}', (SELECT coalesce(json_agg(t), '[]') FROM {each} t WHERE account_id = $1)"  # noqa: S608 - our own tables
        for each in tables
    )
    await root.execute(f"""
        SET session_replication_role = replica;
        CREATE SCHEMA saved; {copies}
        CREATE FUNCTION saved.save(uuid) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN {save} END $f$;
        CREATE FUNCTION saved.put_back(uuid, clock interval) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN
            {put_back}
            UPDATE account SET clock_offset = clock WHERE account_id = $1;
        END $f$;
        CREATE FUNCTION saved.rows(uuid) RETURNS json LANGUAGE plpgsql AS $f$ BEGIN
            RETURN json_build_object({rows});
        END $f$;
    """)  # noqa: S608 - our own tables
