"""Measure the billing run, compared with a hand-written SQL statement that writes the same rows into the same tables.

The engine and the statement run alternately, each on a new clone of the same database. The plans have two items and a
discount. The server is the embedded PostgreSQL with fsync on. The engine runs as a worker process with the generation
lane. After each round, the numbers of rows and the sums of values must be equal on both sides.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from bench.by_hand import BY_HAND
from bench.frame import Amount, Figure, Measured, Options, Plot
from bench.one_lane import worked
from bench.prepared import connected, prepare
from bench.servers import cloned, open_accounts, prepared, server

ROUNDS = 5
LEAST_RATIO = 0.7
MOST_MEGABYTES = 300
RIVAL = "one hand-written statement per account"

Written = tuple[int, ...]

_SEE = "SELECT set_config('app.account', $1, false)"
_WRITTEN = """
    SELECT (SELECT count(*) FROM invoice), (SELECT sum(total_cents) FROM invoice)::bigint,
        (SELECT count(*) FROM invoice_item), (SELECT sum(amount_cents) FROM invoice_item)::bigint,
        (SELECT count(*) FROM event), (SELECT sum(length(data)) FROM event),
        (SELECT sum(next_due_date - date '2000-01-01') FROM subscription),
        (SELECT sum(cycle_count) FROM subscription), (SELECT last_sequence FROM account_counter)
"""


def run(options: Options) -> Measured:
    """Measure the billing run with several numbers of due subscriptions, in one account and in many accounts."""
    measured = Measured()
    sizes = [
        (1, 10_000),
        (1, options.pick(short=20_000, full=100_000)),
        (options.pick(short=50, full=1000), options.pick(short=5_000, full=100_000)),
    ]
    with server() as url:
        for accounts, due in sizes:
            asyncio.run(_measure(options, measured, url, accounts=accounts, due=due))
    one = [each for each in measured.figures if each.what.startswith("one account")]
    measured.plots.append(
        Plot(
            "generation",
            "The billing run against a hand-written statement",
            "due",
            "ratio of invoices per second",
            {
                "engine / by hand": [
                    (size, figure.ratio) for (_, size), figure in zip(sizes, one, strict=False)
                ]
            },
        )
    )
    return measured


async def _measure(options: Options, measured: Measured, server_url: str, *, accounts: int, due: int) -> None:
    name = f"due{accounts}x{due}"
    ids: list[UUID] = []

    async def fill(url: str) -> None:
        ids.extend(each.account_id for each in await open_accounts(url, accounts))
        connection = await connected(url)
        for account_id in ids:
            await prepare(connection, account_id, due=due // accounts, analyze=False)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()

    await prepared(server_url, name, fill)
    ours, theirs, megabytes = list[float](), list[float](), 0.0
    for number in range(ROUNDS):
        async with cloned(server_url, name) as url:
            by_hand, written_by_hand = await _by_hand(url, ids), await _written(url, ids)
        async with cloned(server_url, name) as url:
            engine = await worked(url, "generation", due)
            assert await _written(url, ids) == written_by_hand, "the two sides wrote different rows"
        ours.append(due / engine.seconds)
        theirs.append(due / by_hand)
        megabytes = max(megabytes, *engine.megabytes)
        options.log(
            f"{accounts} accounts, {due:,} due, round {number + 1}: {ours[-1]:,.0f}/s, by hand {theirs[-1]:,.0f}/s"
        )
    what = "one account" if accounts == 1 else f"{accounts:,} accounts"
    measured.figures.append(
        Figure(1, f"{what}, {due:,} due", "invoices/s", RIVAL, ours, theirs, at_least=LEAST_RATIO)
    )
    measured.amounts.append(
        Amount(1, f"{what}, {due:,} due: peak memory of the worker", "MB", megabytes, at_most=MOST_MEGABYTES)
    )


async def _by_hand(url: str, account_ids: Sequence[UUID]) -> float:
    """Run the hand-written statement for each account. Return the elapsed seconds."""
    connection = await connected(url)
    began = time.perf_counter()
    for account_id in account_ids:
        await connection.execute(_SEE, str(account_id))
        await connection.execute(BY_HAND, account_id, datetime.now(UTC))
    took = time.perf_counter() - began
    await connection.close()
    return took


async def _written(url: str, account_ids: Sequence[UUID]) -> Written:
    """Return row counts and sums of values, which must not depend on who billed: the engine or the statement."""
    connection = await connected(url)
    sums: list[Written] = []
    for account_id in account_ids:
        await connection.execute(_SEE, str(account_id))
        sums.append(tuple(await connection.fetchrow(_WRITTEN)))
    await connection.close()
    return tuple(map(sum, zip(*sums, strict=True)))
