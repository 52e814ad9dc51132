"""What tests stand on: one real PostgreSQL a process, one database a test, cloned from a migrated template."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from fatura import postgres
from fatura.store.migrations.runner import migrate
from tests.support.world import World, open_world

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
"""What tests may do without: no machine loses power between their assertions, no database lives for long.

Autovacuum runs as a superuser: met in a database that is being dropped by force, it makes the drop fail.
"""


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this test process's own; its URL ends in the database `fatura`."""
    folder: Path = tmp_path_factory.mktemp("postgres")
    with postgres.start(folder, settings=FAST) as server:
        asyncio.run(make_template(server.url))
        yield server.url


async def make_template(url: str) -> None:
    """Make the migrated database that those of tests are copies of."""
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE DATABASE template_fatura")
    await connection.close()
    await migrate(database_url_of(url, "template_fatura"))


def database_url_of(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    before, after = url.split("/fatura?", 1)
    return f"{before}/{name}?{after}"


@asynccontextmanager
async def fresh_database(server_url: str, *, template: str = "template_fatura") -> AsyncGenerator[str]:
    """Make a database, migrated unless the template is another, and drop it in the end."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        yield database_url_of(server_url, name)
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


@pytest.fixture
async def database_url(server_url: str) -> AsyncIterator[str]:
    """A fresh, migrated database of this test's own."""
    async with fresh_database(server_url) as url:
        yield url


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """The whole engine on a fresh database, with one sandbox account."""
    async with open_world(database_url) as opened:
        yield opened
