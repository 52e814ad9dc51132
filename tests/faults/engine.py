"""Open the engine in a fault run. The run supplies the clock, the gateways and the class of database connections."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import asyncpg

from fatura import settings
from fatura.bootstrap import wire
from fatura.gateways.provider import Providers
from fatura.store.db import Database, Tx, connect
from fatura.store.vault import Vault
from fatura.usecases.accounts import tag_key
from fatura.usecases.deps import Deps
from tests.support.unlimited import LOOPBACK, UNLIMITED


class OnClock:
    """A database that returns the time of the fault run's clock instead of PostgreSQL's time.

    The engine compares the database's time with its own clock (D-5). In a fault run, the engine's clock is the run's
    clock, so the engine finds no difference.
    """

    def __init__(self, db: Database, clock: Callable[[], datetime]) -> None:
        self._db = db
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def limited(self, limit: asyncio.Semaphore) -> "OnClock":
        return OnClock(self._db.limited(limit), self._clock)

    async def ping(self) -> datetime:
        await self._db.ping()
        return self._clock()

    async def clock_time(self, _tx: Tx, /) -> datetime:
        return self._clock()


@asynccontextmanager
async def open_engine(
    url: str,
    *,
    ring: str,
    clock: Callable[[], datetime],
    providers: Callable[[Database], AbstractAsyncContextManager[Providers]] | None = None,
    connection_class: "type[asyncpg.Connection[asyncpg.Record]]" = asyncpg.Connection,
    notify: Callable[[str], None] = lambda _lane: None,
) -> AsyncGenerator[Deps]:
    """Open the engine's dependencies for one process. `providers` opens gateways in addition to the built-in ones."""
    db = await connect(url, max_connections=10, connection_class=connection_class)
    on_clock = cast("Database", OnClock(db, clock))
    try:
        async with engine_on(on_clock, ring=ring, clock=clock, providers=providers, notify=notify) as deps:
            yield deps
    finally:
        await db.close()


@asynccontextmanager
async def engine_on(
    db: Database,
    *,
    ring: str,
    clock: Callable[[], datetime],
    providers: Callable[[Database], AbstractAsyncContextManager[Providers]] | None = None,
    notify: Callable[[str], None] = lambda _lane: None,
) -> AsyncGenerator[Deps]:
    """Do the same as `open_engine`, but on a database that is already open. The caller closes the database."""
    allow = {"FATURA_OUTBOUND_ALLOW": LOOPBACK, "FATURA_OUTBOUND_ALLOW_LIVE": LOOPBACK}
    read = settings.read({**UNLIMITED, **allow})
    vault = Vault([ring])
    tagger = await tag_key.load(db, vault)
    deps = wire(read, db, vault=vault, tagger=tagger, clock=clock, notify=notify)
    try:
        if providers is None:
            yield deps
        else:
            async with providers(db) as chosen:
                yield replace(deps, providers={**deps.providers, **chosen})
    finally:
        await deps.merchants.close()
