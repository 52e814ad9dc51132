"""A migrated database that many tests use, one after another. Each test begins with empty tables.

A new database for each test would be slower, because its connections would have no cached plans.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from fatura.store.db import Database, connect
from fatura.store.migrations.runner import migrate

USES = 100
"""A database is replaced after this number of tests, because deleted rows stay in its files."""
CLOSE_SECONDS = 5
CLEAR = """
DO $$
DECLARE
    emptied regclass;
BEGIN
    SET LOCAL session_replication_role = replica;  -- no trigger refuses the deletion
    SET LOCAL lock_timeout = '2s';
    FOR emptied IN SELECT oid FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'schema_migration'
    LOOP
        EXECUTE format('DELETE FROM %s', emptied);
    END LOOP;
END
$$
"""
SCHEMA = """
SELECT ARRAY[
    (SELECT sum(hashtext(attrelid || ' ' || attname || attnotnull)) FROM pg_attribute),
    (SELECT sum(hashtext(proname || prosrc)) FROM pg_proc WHERE pronamespace = 'public'::regnamespace),
    (SELECT count(*) FROM pg_trigger),
    (SELECT count(*) FROM pg_constraint),
    (SELECT count(*) FROM pg_policy)
]::text
"""
"""A fingerprint of the schema. It changes if a test adds a trigger or changes a table."""


def as_superuser(url: str) -> str:
    return _as_role(url, "postgres")


def as_owner(url: str) -> str:
    """Return the URL with the role that owns the tables of the migrated test databases."""
    return _as_role(url, "fatura_owner")


def _as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


async def migrate_as_owner(url: str) -> None:
    """Migrate a database of an embedded server."""
    await migrate(as_owner(url), engine_role="fatura")


async def extend_roles(url: str) -> None:
    """Let the engine's role create databases, and let the owner of the tables see which statements wait."""
    connection = await asyncpg.connect(as_superuser(url))
    await connection.execute("ALTER ROLE fatura CREATEDB; GRANT pg_monitor TO fatura_owner")
    await connection.close()


@dataclass(slots=True)
class UsedDatabase:
    url: str
    db: Database
    schema: str
    uses: int = 0


class ReusedDatabase:
    """Gives tests a database. Replaces it after USES tests, or if a test has changed the schema or still locks rows."""

    def __init__(self, create: Callable[[], AbstractAsyncContextManager[str]]) -> None:
        self._create = create
        self._opened = AsyncExitStack()
        self._superuser: asyncpg.Connection[asyncpg.Record] | None = None
        self._used: UsedDatabase | None = None

    async def open(self) -> UsedDatabase:
        if self._used is None:
            url = await self._opened.enter_async_context(self._create())
            db = await connect(url, max_connections=20)
            self._superuser = await asyncpg.connect(as_superuser(url))
            self._used = UsedDatabase(url, db, await self._superuser.fetchval(SCHEMA))
        self._used.uses += 1
        return self._used

    async def clear(self) -> None:
        """Delete all rows, or drop the database if it must be replaced. `open` then creates another database."""
        assert self._used, "`open` was called"
        assert self._superuser, "`open` was called"
        try:
            if self._used.uses < USES and await self._superuser.fetchval(SCHEMA) == self._used.schema:
                await self._superuser.execute(CLEAR)
                return
        except (asyncpg.PostgresError, asyncpg.InterfaceError):  # the database was killed, or a row is locked
            pass
        await self.close()

    async def close(self) -> None:
        """Drop the database, even if connections to it are in use."""
        if self._superuser is not None:
            self._superuser.terminate()
        if self._used is not None:
            await asyncio.wait([asyncio.create_task(self._used.db.close())], timeout=CLOSE_SECONDS)
        self._used = self._superuser = None
        await self._opened.aclose()
