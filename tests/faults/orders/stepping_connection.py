"""Connections on which every statement is a step, and pools that are opened before stepping starts."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import asyncpg

from fatura.store.db import Database

_NOT_A_STEP = ("BEGIN", "SET LOCAL")
"""Statements that take no lock and no snapshot. They are sent without a step."""


def connection_class(
    doing: Callable[..., AbstractAsyncContextManager[None]],
) -> "type[asyncpg.Connection[Any]]":
    """Return a connection class that executes each statement inside `doing`, with its text as label."""

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
    async with AsyncExitStack() as stack:
        for _ in range(connections):
            await stack.enter_async_context(db.discovery())
    return db
