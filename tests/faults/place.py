"""Start the PostgreSQL server of a fault run, and create migrated databases on it."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from fatura import postgres
from tests.conftest import FAST, database_url_of, fresh_database, make_template, memory_folder
from tests.faults import breaks
from tests.support.databases import as_owner


@contextmanager
def server(settings: Mapping[str, str] | None = None) -> Generator[str]:
    """Run a server in a temporary folder and yield its URL. `settings` defaults to FAST."""
    with (
        tempfile.TemporaryDirectory(prefix="fatura-faults-", dir=memory_folder()) as folder,
        postgres.start(Path(folder), settings=FAST if settings is None else settings) as started,
    ):
        asyncio.run(_make_template(started.url))
        yield started.url


def process_count() -> int:
    """Return the number of worker processes: one on a single core, otherwise one more than there are cores.

    A worker waits while PostgreSQL executes its statement, so the worker and its database session together use about
    one core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores == 1 else cores + 1


async def _make_template(server_url: str) -> None:
    """Create the template from which all databases of the run are copied. Apply the SQL of the chosen break to it."""
    await make_template(server_url)
    await breaks.break_database(as_owner(database_url_of(server_url, "template_fatura")))


@asynccontextmanager
async def database(server_url: str) -> AsyncGenerator[str]:
    async with fresh_database(server_url) as url:
        yield url
