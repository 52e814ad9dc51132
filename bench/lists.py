"""Measure the time of lists of invoices, by page and by filter, in a large and a small database."""

from collections.abc import Awaitable, Callable, Mapping

import httpx

from bench.client import client_of
from bench.frame import Figure, Measured, Options, Plot
from bench.servers import seen
from bench.sides import ROUNDS, Side, median_ms, points

READS = 10
MOST_RATIO = 3
PAGE_SIZE = 20


async def lists(options: Options, measured: Measured, few: Side, big: Side) -> None:
    taken: dict[str, dict[int, list[float]]] = {}
    for number in range(ROUNDS):
        for each in (few, big):
            async with client_of(each.url, each.account) as client:
                for name, path in (await _paths(each)).items():
                    seconds = await median_ms(_reading(client, path), READS)
                    taken.setdefault(name, {}).setdefault(each.subscriptions, []).append(seconds)
        options.log(f"lists, round {number + 1}")
    for name, by_size in taken.items():
        what = f"GET /v1/invoices, {name}, {big.subscriptions:,} invoices"
        ours, theirs = by_size[big.subscriptions], by_size[few.subscriptions]
        against = f"{few.subscriptions:,} invoices"
        measured.figures.append(Figure(6, what, "ms", against, ours, theirs, at_most=MOST_RATIO))
    lines = {name: points(by_size) for name, by_size in taken.items()}
    measured.plots.append(
        Plot("lists", "The list of invoices, with its exact total", "invoices", "ms", lines)
    )


def _reading(client: httpx.AsyncClient, path: str) -> Callable[[], Awaitable[None]]:
    async def read() -> None:
        answer = await client.get(path)
        assert answer.json()["data"], f"{path} shows nothing"

    return read


async def _paths(side: Side) -> Mapping[str, str]:
    async with seen(side.url, side.account.account_id) as connection:
        row = await connection.fetchrow("SELECT subscription_id, customer_id FROM subscription LIMIT 1")
    last = side.subscriptions // PAGE_SIZE
    base = f"/v1/invoices?pageSize={PAGE_SIZE}"
    return {
        "page 1": base,
        "the page in the middle": f"{base}&page={last // 2}",
        "the last page": f"{base}&page={last}",
        "by status": f"{base}&status=ready",
        "by subscription": f"{base}&subscriptionId={row['subscription_id']}",
        "by customer": f"{base}&customerId={row['customer_id']}",
        "by a day": f"{base}&dueFrom=2026-01-05&dueTo=2026-01-05",
        "by a month": f"{base}&dueFrom=2026-01-01&dueTo=2026-01-31",
    }
