"""The database of a worker process. Before each trial, its rows are replaced by those of the flow's fixture."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from fatura.store.db import Database
from tests.conftest import database_url_of
from tests.faults import breaks
from tests.faults.crashes.place import KeptConnection, Place, open_pool
from tests.support.databases import as_owner, as_superuser
from tests.support.populated import columns_of_tables

MIGRATED = "template_fatura"

_MOVE_IN = """
    UPDATE public.product SET endpoint_url = replace(endpoint_url, old_url, new_url) WHERE endpoint_url IS NOT NULL;
    UPDATE public.webhook SET url = replace(url, old_url, new_url);
"""
"""Replaces the merchant's URLs in the fixture by the URLs of the trial's external services."""


@dataclass(slots=True)
class TrialDatabase:
    """The connections to the database.

    `root` is a superuser's connection. `reader` reads the rows that are compared with the journal. The engine uses the
    pool `db` to create fixtures and during the recovery.
    """

    root: Any
    reader: Any
    db: Database
    tables: dict[str, str]
    _living: list[int] = field(default_factory=list[int])

    async def clear(self) -> None:
        await self.root.execute("; ".join(f"DELETE FROM public.{table}" for table in self.tables))  # noqa: S608 - from the catalog

    async def save(self, place: Place) -> None:
        """Save the rows of a fixture, and create an SQL function that restores these rows."""
        back = ""
        for table, columns in self.tables.items():
            back += f"DELETE FROM public.{table};\n"  # noqa: S608 - from the catalog
            if await self.root.fetchval(f"SELECT EXISTS (SELECT FROM public.{table})"):  # noqa: S608 - as above
                await self.root.execute(f"CREATE TABLE {_saved_table(place, table)} AS TABLE public.{table}")
                back += f"INSERT INTO public.{table} ({columns}) SELECT {columns} FROM {_saved_table(place, table)};\n"  # noqa: S608 - as above
        await self.root.execute(
            f"CREATE FUNCTION {_saved_table(place)}(old_url text, new_url text) RETURNS void LANGUAGE plpgsql"
            f" AS $$ BEGIN {back} {_MOVE_IN} END $$"
        )

    async def reset(self, place: Place, *, like: Place) -> None:
        """Restore the rows of a fixture, and create the trial's folder."""
        await self.root.execute(f"SELECT {_saved_table(like)}($1, $2)", like.external_url, place.external_url)
        place.copy_folder(like)
        self._living = [row["pid"] for row in await self._sessions([])]

    async def wait_for_killed_sessions(self) -> None:
        """Wait until PostgreSQL has ended all sessions of the killed process."""
        async with asyncio.timeout(30):
            while await self._sessions(self._living):  # noqa: ASYNC110 - polling is the only way
                await asyncio.sleep(0.002)

    async def _sessions(self, but: list[int]) -> list[Any]:
        return await self.root.fetch(
            "SELECT a.pid FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> ALL($1::int[])",
            but,
        )


def _saved_table(place: Place, table: str = "") -> str:
    return f'kept."{place.name} {table}"'


async def make_database(server_url: str, name: str) -> str:
    connection = await asyncpg.connect(as_superuser(server_url))
    try:
        await connection.execute(
            f"CREATE DATABASE {name} OWNER fatura_owner TEMPLATE {MIGRATED} STRATEGY file_copy"
        )
    finally:
        await connection.close()
    url = database_url_of(server_url, name)
    await breaks.break_database(as_owner(url))
    return url


@asynccontextmanager
async def open_trial_database(url: str) -> AsyncGenerator[TrialDatabase]:
    """Connect to a database. Writes through `root` fire no triggers and check no foreign keys."""
    root: Any = await asyncpg.connect(
        as_superuser(url),
        server_settings={"session_replication_role": "replica"},
    )
    await root.execute("CREATE SCHEMA kept")
    tables = await columns_of_tables(root)
    reader = await asyncpg.connect(url, connection_class=KeptConnection)
    try:
        async with open_pool(url) as db:
            yield TrialDatabase(root, reader, db, tables)
    finally:
        await reader.close()
        await root.close()
