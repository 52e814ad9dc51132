"""The folder, clock and engine of a trial. The engine uses the database of the worker that executes the trial."""

import json
import shutil
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import asyncpg
import httpx

from fatura.outbound.http import MerchantClient
from fatura.store.db import Database, connect
from fatura.usecases.accounts.accounts import OpenedAccount
from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES
from tests.faults import clock
from tests.faults.clock import FastClock
from tests.faults.crashes.external import CLOCK_FILE
from tests.faults.crashes.points import CountedGateway, CountedMerchants, Points, connection_class
from tests.faults.engine import OnClock, engine_on
from tests.faults.external_gateway import external_providers
from tests.faults.external_process import share_secrets
from tests.faults.journal import JOURNAL_FILE, copy_journal
from tests.support.world import LANE, Merchant, api_client, run_until_idle

NOTES_FILE = "notes.json"
STATEMENTS = 1000
"""Size of the cache of prepared statements, larger than the number of different statements."""


@dataclass(slots=True)
class ShiftedClock:
    """A clock that shows real time plus an offset, which the trial increases.

    The test gateway and merchants read the clock from `file`.
    """

    file: Path
    _fast: FastClock

    @classmethod
    def started(cls, folder: Path, at: datetime) -> "ShiftedClock":
        made = cls(folder / CLOCK_FILE, clock.started(speed=1, at=at))
        made.file.write_text(str(made._fast))
        return made

    @classmethod
    def continued(cls, folder: Path) -> "ShiftedClock":
        """Return the clock that another process of the trial has stored."""
        return cls(folder / CLOCK_FILE, clock.read((folder / CLOCK_FILE).read_text()))

    def __call__(self) -> datetime:
        return self._fast()

    def move_to(self, at: datetime) -> None:
        """Set the clock forward to an instant. Has no effect if the instant has passed."""
        if at > self():
            self._fast = FastClock(at, time.monotonic(), 1)
            self.file.write_text(str(self._fast))

    def move(self, seconds: float) -> None:
        self.move_to(self() + timedelta(seconds=seconds))


@dataclass(slots=True)
class Notes:
    """What a fixture stores for later trials: its account, its ids, and the time when its creation ended."""

    account_id: str = ""
    api_key: str = ""
    secrets: list[str] = field(default_factory=list[str])
    ended_at: str = ""
    ids: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Shared:
    """What all trials of one worker process share: the database, folder, external services and key ring."""

    url: str
    folder: Path
    external_url: str
    ring: str


@dataclass(frozen=True, slots=True)
class Place:
    """The name of a trial or a fixture, which determines its folder and the URL of its external services."""

    shared: Shared
    name: str

    @property
    def folder(self) -> Path:
        return self.shared.folder / self.name

    @property
    def external_url(self) -> str:
        return f"{self.shared.external_url}/{self.name}"

    def notes(self) -> Notes:
        return Notes(**json.loads((self.folder / NOTES_FILE).read_text()))

    def copy_folder(self, like: "Place") -> None:
        """Copy all files of another place. SQLite copies the journal, because other processes have the journal open."""
        self.folder.mkdir()
        for file in like.folder.iterdir():
            if not file.name.startswith(JOURNAL_FILE):
                shutil.copy(file, self.folder)
        if (like.folder / JOURNAL_FILE).exists():
            copy_journal(like.folder / JOURNAL_FILE, self.folder / JOURNAL_FILE)

    def drop_folder(self) -> None:
        shutil.rmtree(self.folder)


class Shop(Merchant):
    """A merchant that calls the API of a trial's engine.

    The merchant can also run the engine's lanes and set the clock forward.
    """

    def __init__(
        self, deps: Deps, client: httpx.AsyncClient, place: Place, *, notes: Notes, now: ShiftedClock
    ) -> None:
        super().__init__(deps, client, cast("OpenedAccount", notes))
        self.place = place
        self.notes = notes
        self.now = now
        self.ids = notes.ids

    def external(self, path: str) -> str:
        return f"{self.place.external_url}/{path}"

    async def run(self, *lanes: str) -> int:
        """Run the named lanes, or all, until nothing is due."""
        return await run_until_idle(self.deps, [LANE[name] for name in lanes] or LANES)

    def share_secret(self, secret: str) -> None:
        self.notes.secrets.append(secret)
        share_secrets(self.place.folder, {self.notes.account_id: self.notes.secrets})

    def write_notes(self) -> None:
        self.notes.ended_at = self.now().isoformat()
        (self.place.folder / NOTES_FILE).write_text(
            json.dumps({name: getattr(self.notes, name) for name in Notes.__slots__})
        )

    async def sql(self, statement: str, *values: object) -> Sequence[asyncpg.Record]:
        async with self.deps.db.transaction(UUID(str(self.account_id))) as tx:
            return await cast("Any", tx)._connection.fetch(statement, *values)


class TrialTimeDatabase(OnClock):
    """A database whose `ping` returns the trial's time without a query."""

    async def ping(self) -> datetime:
        return self._clock()


class KeptConnection(asyncpg.Connection):
    """A connection that many trials use, so that its statements stay prepared."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        cast("Any", self)._stmt_cache.set_max_size(STATEMENTS)


@asynccontextmanager
async def open_shop(
    place: Place,
    *,
    now: ShiftedClock,
    notes: Notes,
    points: Points | None = None,
    db: Database | None = None,
) -> AsyncGenerator[Shop]:
    """Open the engine of a trial, on the connection pool `db` or on a new pool.

    If `points` is given, it counts the engine's I/O, and may kill the process at a statement or call.
    """
    async with AsyncExitStack() as stack:
        pool = db or await stack.enter_async_context(open_pool(place.shared.url, points))
        opened = await stack.enter_async_context(
            engine_on(
                cast("Database", TrialTimeDatabase(pool, now)),
                ring=place.shared.ring,
                clock=now,
                providers=external_providers(place.external_url),
            )
        )
        deps = opened if points is None else _watched(opened, points)
        client = await stack.enter_async_context(api_client(deps))
        yield Shop(deps, client, place, notes=notes, now=now)


@asynccontextmanager
async def open_pool(url: str, points: Points | None = None) -> AsyncGenerator[Database]:
    """Open a connection pool. If `points` is given, it counts every statement of the pool."""
    kind = KeptConnection if points is None else connection_class(points)
    db = await connect(url, max_connections=4, connection_class=kind)
    try:
        yield db
    finally:
        await db.close()


def _watched(deps: Deps, points: Points) -> Deps:
    known = deps.providers["outside"]

    def factory(config: Any) -> Any:
        return CountedGateway(known.factory(config), points)

    return replace(
        deps,
        providers={**deps.providers, "outside": replace(known, factory=factory)},
        merchants=cast("MerchantClient", CountedMerchants(deps.merchants, points)),
    )
