"""Call the application in this process, and detect which requests commit writes."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import asyncpg
import httpx

from fatura.api.app import create_app
from fatura.bootstrap import real_clock
from fatura.domain.credentials import Mode
from fatura.store.vault import new_key
from tests.faults.engine import open_engine
from tests.faults.probes.judge import Answer
from tests.faults.probes.mutations import Wire
from tests.support.world import World, open_account

_CHANGES: ContextVar[list[str] | None] = ContextVar("changes", default=None)


class Watched(asyncpg.Connection):
    """Just before each commit, records PostgreSQL's id of the transaction.

    PostgreSQL gives no id to a transaction that does not write, so only transactions that write are recorded.
    """

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        changes = _CHANGES.get()
        if query == "COMMIT" and changes is not None:
            number = await super().fetchval("SELECT pg_current_xact_id_if_assigned()::text")
            if number is not None:
                changes.append(number)
        return await super().execute(query, *args, **options)


@asynccontextmanager
async def open_watched(database_url: str) -> AsyncGenerator[tuple[World, Any]]:
    """Open the engine on connections that record writes. Yield a `World` with this engine, and the application."""
    async with open_engine(database_url, ring=new_key(), clock=real_clock, connection_class=Watched) as deps:
        app = create_app(deps)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://fatura.test") as client:
            yield World(deps, client, await open_account(deps, Mode.SANDBOX), database_url), app


async def ask(app: Any, wire_: Wire) -> tuple[Answer, Sequence[str]]:
    """Send a request. Return the response, and the ids of the transactions in which the request wrote."""
    changes: list[str] = []
    token = _CHANGES.set(changes)
    sent: list[dict[str, Any]] = []
    pending = [{"type": "http.request", "body": wire_.body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return pending.pop() if pending else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    try:
        await app(_scope(wire_), receive, send)
    finally:
        _CHANGES.reset(token)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent[0]["headers"]}
    body = b"".join(each.get("body", b"") for each in sent[1:])
    return Answer(sent[0]["status"], headers, body), changes


def _scope(wire_: Wire) -> dict[str, Any]:
    """Return the ASGI scope as uvicorn creates it, with a decoded path and a raw query."""
    raw = wire_.path.encode("latin-1", "replace")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": wire_.method,
        "scheme": "http",
        "path": unquote(wire_.path),
        "raw_path": raw,
        "root_path": "",
        "query_string": wire_.query.encode("latin-1", "replace"),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in wire_.headers
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
