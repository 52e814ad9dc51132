"""Connections whose every statement is a step of the stepper, and their pools, opened before anything is stepped."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import asyncpg

from fatura.store.db import Database

_NOT_A_STEP = ("BEGIN", "SET LOCAL")
"""Statements that nobody else could notice: they take no lock and no snapshot, so they are sent at once."""


def connection_class(
    doing: Callable[..., AbstractAsyncContextManager[None]],
) -> "type[asyncpg.Connection[Any]]":
    """Return a class whose every statement is done inside `doing`, labelled with its text."""

    class SteppedConnection(asyncpg.Connection):
        def _as_step(self, sql: str) -> AbstractAsyncContextManager[None]:
            return doing(sql, pid=self.get_server_pid(), waits_for_turn=not sql.startswith(_NOT_A_STEP))

        async def execute(self, query: str, *args: object, **options: Any) -> str:
            async with self._as_step(query):
                return await super().execute(query, *args, **options)

        async def fetch(self, query: str, *args: object, **options: Any) -> Any:
            async with self._as_step(query):
                return await super().fetch(query, *args, **options)

        async def fetchval(self, query: str, *args: object, **options: Any) -> Any:
            async with self._as_step(query):
                return await super().fetchval(query, *args, **options)

        async def fetchrow(self, query: str, *args: object, **options: Any) -> Any:
            async with self._as_step(query):
                return await super().fetchrow(query, *args, **options)

    return SteppedConnection


async def open_whole(db: Database, connections: int) -> Database:
    """Open all connections of a pool, and return it."""
    async with AsyncExitStack() as stack:
        for _ in range(connections):
            await stack.enter_async_context(db.discovery())
    return db
