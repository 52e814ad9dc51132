"""Connections on which every statement is a step of the stepper.

Connecting is not a step, so pools are opened before the stepper starts.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import asyncpg

from fatura.store.db import Database
from tests.faults import connections
from tests.faults.connections import Send

_NOT_A_STEP = ("BEGIN", "SET LOCAL")
"""Beginnings of statements that take no lock and no snapshot.

Such a statement is not a step: it runs immediately, without waiting until the stepper chooses its thread.
"""


def connection_class(
    doing: Callable[..., AbstractAsyncContextManager[None]],
) -> "type[asyncpg.Connection[Any]]":
    """Return a connection class that executes each statement as a step of the stepper, with its SQL as the label."""

    async def around(connection: Any, sql: str, send: Send, *, is_prepared: bool) -> Any:
        step = doing(sql, pid=connection.get_server_pid(), waits_for_turn=not sql.startswith(_NOT_A_STEP))
        async with step:
            return await send()

    return connections.connection_class(around)


async def open_whole(db: Database, connections: int) -> Database:
    async with AsyncExitStack() as stack:
        for _ in range(connections):
            await stack.enter_async_context(db.discovery())
    return db
