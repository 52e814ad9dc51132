"""For each request, record the engine's SQL statements and its answer. `bench.bare_api` replays the statements."""

import asyncio
import pickle
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from bench.api_requests import ApiRequest
from bench.servers import opened
from fatura.api.app import create_app
from fatura.usecases.accounts.accounts import OpenedAccount

AT_ONCE = 8

Statement = tuple[str, str, tuple[Any, ...]]
"""The method that the engine called on the connection, the SQL, and its values."""

_RECORDED: ContextVar[list[list[Statement]] | None] = ContextVar("recorded", default=None)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The statements of one request, grouped by transaction, and the answer."""

    transactions: Sequence[Sequence[Statement]]
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


Recording = Mapping[tuple[str, str], Recorded]
"""Recorded requests by target and Idempotency-Key."""


class RecordingConnection(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument] - not generic at run time
    async def execute(self, query: str, *args: Any, **rest: Any) -> str:
        _record("execute", query, args)
        return await super().execute(query, *args, **rest)

    async def fetch(self, query: str, *args: Any, **rest: Any) -> Any:
        _record("fetch", query, args)
        return await super().fetch(query, *args, **rest)

    async def fetchrow(self, query: str, *args: Any, **rest: Any) -> Any:
        _record("fetchrow", query, args)
        return await super().fetchrow(query, *args, **rest)

    async def fetchval(self, query: str, *args: Any, **rest: Any) -> Any:
        _record("fetchval", query, args)
        return await super().fetchval(query, *args, **rest)


def _record(method: str, query: str, values: tuple[Any, ...]) -> None:
    recorded = _RECORDED.get()
    if recorded is None:
        return
    if query.startswith("BEGIN"):
        recorded.append([])
    recorded[-1].append((method, query, values))


async def record(url: str, account: OpenedAccount, requests: Sequence[ApiRequest]) -> Recording:
    """Let the engine answer requests in this process. Return the engine's statements and answers."""
    recording: dict[tuple[str, str], Recorded] = {}
    waiting = iter(requests)

    async with opened(url, connections=AT_ONCE, connection_class=RecordingConnection) as deps:
        transport = httpx.ASGITransport(create_app(deps))
        async with httpx.AsyncClient(transport=transport, base_url="http://fatura") as client:
            # Send one request without recording it: the first request with an API key also updates `last_used_at`.
            await client.get(requests[0].target, headers=requests[0].headers(account))

            async def ask() -> None:
                for each in waiting:
                    recording[each.target, each.key] = await _recorded(client, account, each)

            await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return recording


async def _recorded(client: httpx.AsyncClient, account: OpenedAccount, request: ApiRequest) -> Recorded:
    recorded: list[list[Statement]] = []
    token = _RECORDED.set(recorded)
    answer = await client.request(
        request.method, request.target, content=request.body, headers=request.headers(account)
    )
    _RECORDED.reset(token)
    assert answer.is_success, answer.text
    return Recorded(recorded, answer.status_code, answer.headers.raw, answer.content)


def keep(recording: Recording, path: Path) -> None:
    path.write_bytes(pickle.dumps(dict(recording)))


def kept(path: Path) -> Recording:
    return pickle.loads(path.read_bytes())  # noqa: S301 - written by this program
