"""Measure the time to read a page of a stream with at least a million events, at a late cursor and at the start."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from bench.client import client_of
from bench.frame import Figure, Measured, Options, Plot
from bench.servers import open_accounts, prepared, seen, server
from bench.sides import ROUNDS, median_ms, points
from fatura.usecases.accounts.accounts import OpenedAccount

READS = 30
LIMIT = 200
MOST_RATIO = 1.2
TYPES = {"all types": "", "one type": "&type=invoice.created"}

_EVENTS = """
    INSERT INTO event (account_id, sequence, event_id, type, created_at, data, stored_at)
    SELECT $1, n, gen_random_uuid(), CASE n % 3 WHEN 0 THEN 'invoice.created' ELSE 'invoice.issued' END, now(),
        '{"invoice":{"id":"' || gen_random_uuid() || '","status":"ready","totalCents":' || n || '}}', now()
    FROM generate_series(1, $2::int8) n
"""


def run(options: Options) -> Measured:
    measured = Measured()
    with server() as url:
        asyncio.run(_run(options, measured, url, events=options.pick(short=1_000_000, full=5_000_000)))
    return measured


async def _run(options: Options, measured: Measured, server_url: str, *, events: int) -> None:
    accounts: list[OpenedAccount] = []

    async def fill(url: str) -> None:
        accounts.extend(await open_accounts(url, 1))
        async with seen(url, accounts[0].account_id) as connection:
            await connection.execute(_EVENTS, accounts[0].account_id, events)
            await connection.execute("VACUUM ANALYZE event")

    options.log(f"filling in {events:,} events")
    url = await prepared(server_url, "stream", fill)
    depths = [0, events // 1000, events // 2, events - 10 * LIMIT]
    taken = {name: {depth: list[float]() for depth in depths} for name in TYPES}
    async with client_of(url, accounts[0]) as client:
        for number in range(ROUNDS):
            for name, filters in TYPES.items():
                for depth in depths:
                    path = f"/v1/events?limit={LIMIT}&cursor={depth}{filters}"
                    taken[name][depth].append(await median_ms(_reading(client, path), READS))
            options.log(f"replayed, round {number + 1}")
    for name, by_depth in taken.items():
        what = f"a page of {LIMIT} events after number {depths[-1]:,}, {name}"
        ours, theirs = by_depth[depths[-1]], by_depth[0]
        measured.figures.append(Figure(7, what, "ms", "at the start", ours, theirs, at_most=MOST_RATIO))
    lines = {name: points(by_depth) for name, by_depth in taken.items()}
    title = f"A page of {LIMIT} events out of {events:,}"
    measured.plots.append(Plot("replay", title, "events before the cursor", "ms", lines))


def _reading(client: httpx.AsyncClient, path: str) -> Callable[[], Awaitable[None]]:
    async def read() -> None:
        answer = await client.get(path)
        assert len(answer.json()["data"]) == LIMIT, answer.text

    return read
