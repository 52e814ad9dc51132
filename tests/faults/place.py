"""The PostgreSQL server of a run, and migrated databases on it."""

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
"""Settings for generic plans. Without them, PostgreSQL spends a sixth of the time on planning statements again."""


@contextmanager
def server(settings: Mapping[str, str] | None = None, *, planned_once: bool = True) -> Generator[str]:
    """Run a server in a temporary folder and yield its URL. `settings` defaults to FAST."""
    with tempfile.TemporaryDirectory(prefix="fatura-faults-", dir=memory_folder()) as folder:
        chosen = {**(FAST if settings is None else settings), **(PLANNED_ONCE if planned_once else {})}
        with postgres.start(Path(folder), settings=chosen) as started:
            asyncio.run(_make_template(started.url))
            yield started.url


def process_count() -> int:
    """Return the number of worker processes. A worker and its server take turns, so together they use one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores == 1 else cores + 1


async def _make_template(server_url: str) -> None:
    """Create the template database, and apply the chosen break to it."""
    await make_template(server_url)
    await breaks.break_database(database_url_of(server_url, "template_fatura"))


@asynccontextmanager
async def database(server_url: str) -> AsyncGenerator[str]:
    async with fresh_database(server_url) as url:
        yield url
