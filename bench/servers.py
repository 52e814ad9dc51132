"""Databases for measurements, on an embedded server with its default settings (fsync on).

A database is filled once, and can then be cloned for each round.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from bench.operator import OPERATOR
from bench.prepared import connected
from fatura import postgres, settings
from fatura.bootstrap import wire
from fatura.domain.credentials import Mode
from fatura.store.db import Row, connect
from fatura.store.vault import Vault, new_key
from fatura.usecases.accounts import accounts, tag_key
from fatura.usecases.accounts.accounts import OpenedAccount
from fatura.usecases.deps import Deps
from tests.support.databases import as_superuser, migrate_as_owner

RING = os.environ.get("FATURA_SECRET_KEYS") or new_key()
"""The key ring of all databases, passed to child processes as `FATURA_SECRET_KEYS`."""

SESSIONS_END_SECONDS = 60
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'"


@contextmanager
def server() -> Generator[str]:
    """Start a server in a temporary folder and yield the URL of its first database."""
    with tempfile.TemporaryDirectory(prefix="fatura-bench-") as folder:
        Path(folder).chmod(0o711)
        with postgres.start(Path(folder) / "data") as started:
            yield started.url


async def _drop(admin: Any, name: str) -> None:
    """Wait until the sessions of processes that have just ended are closed, then drop a database.

    The statement does not use FORCE: with FORCE, it can fail while autovacuum works in the database. Without FORCE,
    PostgreSQL ends the autovacuum worker.
    """
    async with asyncio.timeout(SESSIONS_END_SECONDS):
        while await admin.fetchval(_SESSIONS, name):  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.1)
        await admin.execute(f"DROP DATABASE {name}")


def url_of(server_url: str, name: str) -> str:
    return server_url.replace("/fatura?", f"/{name}?")


async def prepared(server_url: str, name: str, fill: Callable[[str], Awaitable[None]]) -> str:
    """Create and migrate a database, fill it with `fill`, and return its URL."""
    admin = await connected(as_superuser(server_url))
    await admin.execute(f"CREATE DATABASE {name} OWNER fatura_owner")
    # the engine's role owns no table, so PostgreSQL would otherwise skip its `ANALYZE` with a warning
    await admin.execute("GRANT pg_maintain TO fatura")
    await admin.close()
    url = url_of(server_url, name)
    await migrate_as_owner(url)
    await fill(url)
    return url


@asynccontextmanager
async def cloned(server_url: str, name: str, *, apart: str = "round") -> AsyncGenerator[str]:
    """Clone a prepared database, yield the clone's URL, and drop the clone.

    If several clones of a database exist at the same time, each clone needs a different `apart`.
    """
    admin = await connected(as_superuser(server_url))
    clone = f"{name}_{apart}"
    await admin.execute(f"CREATE DATABASE {clone} OWNER fatura_owner TEMPLATE {name} STRATEGY file_copy")
    try:
        yield url_of(server_url, clone)
    finally:
        await _drop(admin, clone)
        await admin.close()


@asynccontextmanager
async def opened(
    url: str,
    *,
    connections: int = 4,
    connection_class: "type[asyncpg.Connection[Row]]" = asyncpg.Connection,
    niceness: int = 0,
) -> AsyncGenerator[Deps]:
    db = await connect(url, max_connections=connections, connection_class=connection_class, niceness=niceness)
    try:
        read = settings.read({"FATURA_RATE_LIMIT": "0", "FATURA_OUTBOUND_ALLOW": "127.0.0.1:1-65535"})
        vault = Vault([RING])
        tagger = await tag_key.load(db, vault)
        yield wire(read, db, vault=vault, tagger=tagger, notify=lambda _lane: None)
    finally:
        await db.close()


async def open_accounts(url: str, count: int, *, mode: Mode = Mode.SANDBOX) -> list[OpenedAccount]:
    """Open accounts. Sandbox accounts get a sandbox gateway."""
    async with opened(url) as deps:
        return [
            await accounts.open_account(deps, name=f"bench {number}", mode=mode, opened_by=OPERATOR)
            for number in range(count)
        ]


@asynccontextmanager
async def seen(url: str, account_id: UUID) -> AsyncGenerator[Any]:
    """Yield an asyncpg connection that can access one account's rows."""
    connection = await connected(url)
    try:
        await connection.execute(f"SET app.account = '{account_id}'")
        yield connection
    finally:
        await connection.close()
