"""Fixtures: one PostgreSQL server per test process, with databases that are copied from a migrated template."""

import asyncio
import gc
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import hypothesis
import pytest
import uvloop

from fatura import postgres
from tests.support.databases import ReusedDatabase, as_superuser, extend_roles, migrate_as_owner
from tests.support.postgres_processes import sweep
from tests.support.receiver import Receiver, open_receiver
from tests.support.world import World, open_world, world_on

SLOWEST = (
    "test_demo",
    "test_short_runs",
    "test_orders",
    "test_restart",
    "test_many_workers",
    "test_embedded",
)
"""Modules with long tests, the longest tests first.

These tests start first. If a long test started last, the other test processes would be idle while it runs.
"""
LAST_IN = Path(__file__).parent / "faults"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of the SLOWEST modules to the front. Keep the order of all other tests.

    Only tests in the folder LAST_IN may have the marker `last`. Raises pytest.UsageError if other tests have it.
    """
    misplaced = [
        item.nodeid for item in items if item.get_closest_marker("last") and LAST_IN not in item.path.parents
    ]
    if misplaced:
        raise pytest.UsageError(f"`make test-faults` runs tests marked `last` only in {LAST_IN}: {misplaced}")
    rank = {stem: number for number, stem in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(SLOWEST)))


def pytest_collection_finish() -> None:
    """Let the garbage collector run rarely. With its usual threshold, it takes a seventh of the tests' time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use the event loop that the commands of `fatura` use."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_xdist_auto_num_workers() -> int:
    """Use two more test processes than there are CPUs, but at most four. Many tests wait for locks or time-outs."""
    return min((os.cpu_count() or 1) + 2, 4)


hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
FAST = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "synchronous_commit": "off",
}
"""Fast settings for databases that need not survive a crash.

Autovacuum is off, so that no query plan depends on the moment at which autovacuum ran.
"""
MEMORY = Path("/dev/shm")  # noqa: S108 - each server creates its own folder there
MEMORY_BYTES = 2 << 30
"""Free memory that `memory_folder` requires, because the databases of one server may need that much."""


def memory_folder() -> Path | None:
    """Return a folder whose files are in memory, or None if too little memory is free.

    Copying a template database takes half as long there as on a disk.
    """
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
    return MEMORY if has_room else None


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of the database `fatura` on the PostgreSQL server of this test process."""
    with (
        tempfile.TemporaryDirectory(prefix="fatura-tests-", dir=memory_folder()) as folder,
        postgres.start(Path(folder), settings=FAST) as server,
    ):
        asyncio.run(make_template(server.url))
        yield server.url


async def make_template(url: str) -> None:
    """Create the migrated database from which the tests' databases are copied."""
    await extend_roles(url)
    connection = await asyncpg.connect(as_superuser(url))
    await connection.execute("CREATE DATABASE template_fatura OWNER fatura_owner")
    await connection.close()
    await migrate_as_owner(database_url_of(url, "template_fatura"))


def database_url_of(url: str, name: str) -> str:
    before, after = url.split("/fatura?", 1)
    return f"{before}/{name}?{after}"


@asynccontextmanager
async def fresh_database(server_url: str, *, template: str = "template_fatura") -> AsyncGenerator[str]:
    """Copy a template (by default the migrated database) to a new database, and drop it after the block."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(as_superuser(server_url))
    try:
        await connection.execute(
            f"CREATE DATABASE {name} OWNER fatura_owner TEMPLATE {template} STRATEGY file_copy"
        )
        yield database_url_of(server_url, name)
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


@pytest.fixture
async def database_url(server_url: str) -> AsyncIterator[str]:
    """The URL of a fresh, migrated database."""
    async with fresh_database(server_url) as url:
        yield url


@pytest.fixture(scope="session")
async def reused_database(server_url: str) -> AsyncIterator[ReusedDatabase]:
    """Databases for the fixture `world`. Many tests use the same database, one test after another."""
    reused = ReusedDatabase(partial(fresh_database, server_url))
    yield reused
    await reused.close()


@pytest.fixture
async def world(reused_database: ReusedDatabase) -> AsyncIterator[World]:
    """The whole engine with one sandbox account, on a database that contains no other data."""
    used = await reused_database.open()
    try:
        async with world_on(used.db, used.url) as opened:
            yield opened
    finally:
        await reused_database.clear()


@pytest.fixture
async def fresh_world(database_url: str) -> AsyncIterator[World]:
    """The whole engine with one sandbox account, on a new database."""
    async with open_world(database_url) as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A merchant's webhook endpoint."""
    async with open_receiver() as opened:
        yield opened


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """The path of a new data folder. After the test, the fixture kills a server that still runs there."""
    yield tmp_path / "data"
    sweep(tmp_path / "data")
