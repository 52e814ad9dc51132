"""Database connections that pass each statement to a function, which may delay the statement or kill the process."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import asyncpg

Send = Callable[[], Coroutine[Any, Any, Any]]


class Around(Protocol):
    async def __call__(self, connection: Any, sql: str, send: Send, *, is_prepared: bool) -> Any:
        """Send the statement `sql` by calling `send`. Return the result of `send`."""
        ...


def connection_class(around: Around) -> "type[asyncpg.Connection[Any]]":
    """Return a connection class that sends every statement, including BEGIN and COMMIT, through `around`."""

    class AroundConnection(asyncpg.Connection):
        async def execute(self, query: str, *args: object, **options: Any) -> str:
            send = super().execute
            return await around(self, query, lambda: send(query, *args, **options), is_prepared=bool(args))

        async def fetch(self, query: str, *args: object, **options: Any) -> Any:
            send = super().fetch
            return await around(self, query, lambda: send(query, *args, **options), is_prepared=True)

        async def fetchval(self, query: str, *args: object, **options: Any) -> Any:
            send = super().fetchval
            return await around(self, query, lambda: send(query, *args, **options), is_prepared=True)

        async def fetchrow(self, query: str, *args: object, **options: Any) -> Any:
            send = super().fetchrow
            return await around(self, query, lambda: send(query, *args, **options), is_prepared=True)

    return AroundConnection
