"""Where a run takes place: a real PostgreSQL of its own, and migrated databases on it."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from fatura import postgres
from tests.conftest import FAST, database_url_of, fresh_database, make_template, memory_folder
from tests.faults import breaks

PLANNED_ONCE = {"jit": "off", "plan_cache_mode": "force_generic_plan"}
"""Tables of a run are small: a sixth of its time would go into planning the same statements again for other values."""


@contextmanager
def server(settings: Mapping[str, str] | None = None, *, planned_once: bool = True) -> Generator[str]:
    """Start a server in a folder that goes away, and yield its URL; FAST unless other settings are given."""
    with tempfile.TemporaryDirectory(prefix="fatura-faults-", dir=memory_folder()) as folder:
        chosen = {**(FAST if settings is None else settings), **(PLANNED_ONCE if planned_once else {})}
        with postgres.start(Path(folder), settings=chosen) as started:
            asyncio.run(_make_template(started.url))
            yield started.url


def hands() -> int:
    """Return how many processes a run works with: one and its server, which take turns, keep a core busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores == 1 else cores + 1


async def _make_template(server_url: str) -> None:
    """Make the template of all databases, and take from it what a deliberate break takes."""
    await make_template(server_url)
    await breaks.break_database(database_url_of(server_url, "template_fatura"))


@asynccontextmanager
async def database(server_url: str) -> AsyncGenerator[str]:
    """Make a migrated database, and drop it in the end."""
    async with fresh_database(server_url) as url:
        yield url
