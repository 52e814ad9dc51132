"""A connection that records a span for each statement, while traces are on (D-232)."""

from typing import Any

import asyncpg

from fatura import tracing
from fatura.tracing import Kind

MAX_TEXT_CHARS = 2000


class TracedConnection(asyncpg.Connection):  # type: ignore[type-arg] - the class is generic only in its type stubs
    """Records the text of statements, which contains placeholders in place of values."""

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        with _span(query):
            return await super().execute(query, *args, **options)

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        with _span(query):
            return await super().fetch(query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        with _span(query):
            return await super().fetchrow(query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        with _span(query):
            return await super().fetchval(query, *args, **options)


def _span(query: str) -> Any:
    text = " ".join(query.split())
    operation = text.partition(" ")[0].rstrip(";")
    return tracing.span(
        operation, kind=Kind.CLIENT, db__system__name="postgresql", db__query__text=text[:MAX_TEXT_CHARS]
    )
