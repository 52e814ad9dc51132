"""Where a run takes place: a real PostgreSQL of its own, and migrated databases on it."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from fatura.store import embedded
from tests.conftest import FAST, fresh_database, make_template


@contextmanager
def server(settings: Mapping[str, str] | None = None) -> Generator[str]:
    """Start a server in a folder that goes away, and yield its URL; FAST unless other settings are given."""
    with tempfile.TemporaryDirectory(prefix="fatura-faults-") as folder:
        chosen = FAST if settings is None else dict(settings)
        with embedded.start(Path(folder), settings=chosen) as started:
            asyncio.run(make_template(started.url))
            yield started.url


@asynccontextmanager
async def database(server_url: str) -> AsyncGenerator[str]:
    """Make a migrated database, and drop it in the end."""
    async with fresh_database(server_url) as url:
        yield url
