"""Every place where a secret could appear: logs, rows, responses, events, requests to merchants, metrics."""

import json
from collections.abc import AsyncIterator

import asyncpg
import httpx

from tests.faults.stack import Client, Stack
from tests.support.databases import as_superuser
from tests.support.receiver import Receiver


async def everything(
    stack: Stack, client: Client, receiver: Receiver, *, url: str
) -> AsyncIterator[tuple[str, str]]:
    """Yield pairs of a place's name, such as `log`, and a text from this place."""
    for name, text in _answers(client):
        yield name, text
    events = [each["data"] for each in await _events(client)]
    for event in events:
        yield "events", json.dumps(event)
    for received in receiver.received:
        yield "hook", f"{dict(received.headers)} {received.body.decode()}"
    for port in stack.metrics_ports.values():
        async with httpx.AsyncClient() as http:
            yield "metrics", (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    async for row in _rows(url):
        yield "dump", row
    for name, line in stack.logs():
        yield "log", f"{name} {line}"


def _answers(client: Client) -> list[tuple[str, str]]:
    return [
        ("errors" if answer.status_code >= 400 else "answers", f"{dict(answer.headers)} {answer.text}")
        for answer in client.answers
    ]


async def _events(client: Client) -> list[dict[str, object]]:
    return (await client.ask("GET", "/v1/events?limit=200")).json()["data"]


async def _rows(url: str) -> AsyncIterator[str]:
    """Yield every row of every table as text, with bytes in hexadecimal."""
    connection = await asyncpg.connect(as_superuser(url))
    try:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        for table in tables:
            for row in await connection.fetch(f"SELECT x::text AS row FROM {table['relname']} x"):  # noqa: S608 - from the catalog
                yield f"{table['relname']} {row['row']}"
    finally:
        await connection.close()
