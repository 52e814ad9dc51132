"""Create databases that differ only in the number of their subscriptions."""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.prepared import prepare
from bench.servers import open_accounts, prepared, seen
from fatura.usecases.accounts.accounts import OpenedAccount

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Side:
    """One prepared database, with its account and the number of the account's subscriptions."""

    name: str
    url: str
    account: OpenedAccount
    subscriptions: int


async def side(server_url: str, size: int) -> Side:
    """Create a database with one account whose subscriptions are all due."""
    accounts: list[OpenedAccount] = []

    async def fill(url: str) -> None:
        accounts.extend(await open_accounts(url, 1))
        async with seen(url, accounts[0].account_id) as connection:
            await prepare(connection, accounts[0].account_id, due=size)

    name = f"of{size}"
    return Side(name, await prepared(server_url, name, fill), accounts[0], size)


async def median_ms(work: Callable[[], Awaitable[Any]], times: int) -> float:
    seconds: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - began)
    return 1000 * statistics.median(seconds)


def points(taken: dict[int, list[float]]) -> Sequence[tuple[float, float]]:
    return [(size, statistics.median(each)) for size, each in taken.items()]
