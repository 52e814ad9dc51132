"""Measure costs with up to a million subscriptions: billing, polls without due work, lists, and disk space."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime

from bench.frame import Amount, Figure, Measured, Options, Plot
from bench.idle import idle_accounts
from bench.lists import lists
from bench.one_lane import worked
from bench.prepared import connected
from bench.servers import cloned, opened, seen, server
from bench.sides import ROUNDS, Side, median_ms, points, side
from fatura.usecases.database_clock import DatabaseClock
from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES

FEW = 1_000
TEN_THOUSAND = 10_000
SPARE = 20_000
"""Additional due subscriptions, because a worker can bill a few more batches than requested."""
SWEEPS = 40
BEFORE_ALL_DUE = datetime(2025, 6, 1, tzinfo=UTC)
MOST_GROWTH = 1.15
MOST_SWEEP = 1.5
TABLES = ("invoice", "invoice_item", "event", "subscription")
_ROWS = "SELECT sum(pg_column_size(x.*))::float8 FROM "


def run(options: Options) -> Measured:
    measured = Measured()
    with server() as url:
        asyncio.run(_run(options, measured, url, many=options.pick(short=160_000, full=1_000_000)))
    return measured


async def _run(options: Options, measured: Measured, server_url: str, *, many: int) -> None:
    few, ten_thousand = await side(server_url, FEW), await side(server_url, TEN_THOUSAND)
    await idle_accounts(options, measured, server_url)
    options.log(f"filling in {many:,} subscriptions")
    big = await side(server_url, many + SPARE)
    await _sweeps(options, measured, few, big)
    before = await _sizes(big)
    wal = await _bill(options, measured, server_url, ten_thousand=ten_thousand, big=big)
    after = await _sizes(big)
    billed = await _bytes(measured, big, grown={table: after[table] - before[table] for table in TABLES})
    measured.amounts.append(Amount(10, "bytes of WAL per invoice, including page images", "B", wal / billed))
    await worked(few.url, "generation", few.subscriptions)
    await worked(big.url, "generation", big.subscriptions - billed)
    for each in (few, big):
        connection = await connected(each.url)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()
    await lists(options, measured, few, big)


async def _sweeps(options: Options, measured: Measured, few: Side, big: Side) -> None:
    taken: dict[int, list[float]] = {few.subscriptions: [], big.subscriptions: []}
    for _ in range(ROUNDS):
        for each in (few, big):
            async with opened(each.url) as deps:
                early = replace(deps, clock=DatabaseClock(lambda: BEFORE_ALL_DUE))
                taken[each.subscriptions].append(await median_ms(_sweeping(early), SWEEPS))
    options.log("swept")
    ours, theirs = taken[big.subscriptions], taken[few.subscriptions]
    what = f"a poll of all lanes with no work due among {big.subscriptions:,} subscriptions"
    measured.figures.append(Figure(3, what, "ms", f"among {FEW:,}", ours, theirs, at_most=MOST_SWEEP))
    lines = {"all lanes": points(taken)}
    measured.plots.append(Plot("sweep", "A poll with no work due", "subscriptions", "ms", lines))


def _sweeping(deps: Deps) -> Callable[[], Awaitable[None]]:
    async def sweep() -> None:
        for lane in LANES:
            assert not await lane.due(deps), f"{lane.name} is due"

    return sweep


async def _bill(
    options: Options, measured: Measured, server_url: str, *, ten_thousand: Side, big: Side
) -> int:
    """Bill the large database in rounds. After each round, bill a clone of the database with 10,000 subscriptions.

    Return the number of bytes of WAL that were written while the large database was billed.
    """
    share, wal = (big.subscriptions - SPARE) // ROUNDS, 0
    costs, small_costs, megabytes = list[float](), list[float](), list[float]()
    async with AsyncExitStack() as clones:
        # Each clone causes a checkpoint, after which PostgreSQL writes full pages to WAL. All clones are therefore made
        # before WAL is measured.
        urls = [
            await clones.enter_async_context(cloned(server_url, ten_thousand.name, apart=f"round{number}"))
            for number in range(ROUNDS)
        ]
        for number, url in enumerate(urls, start=1):
            wal_began = await _wal(big)
            engine = await worked(big.url, "generation", share)
            wal += await _wal(big) - wal_began
            costs.append(1000 * engine.seconds / share)
            megabytes += engine.megabytes
            small = await worked(url, "generation", TEN_THOUSAND)
            small_costs.append(1000 * small.seconds / TEN_THOUSAND)
            options.log(
                f"billed {number * share:,}: {costs[-1]:.3f} ms each; of 10,000 {small_costs[-1]:.3f}"
            )
    what, against = f"an invoice among {big.subscriptions:,} due", f"among {TEN_THOUSAND:,} due"
    measured.figures.append(Figure(1, what, "ms", against, costs, small_costs, at_most=MOST_GROWTH))
    memory = "memory of the worker over these rounds, highest divided by lowest"
    measured.amounts.append(Amount(1, memory, "times", max(megabytes) / min(megabytes), at_most=1.5))
    lines = {
        against: [((number + 0.5) * share, cost) for number, cost in enumerate(small_costs)],
        what: [((number + 0.5) * share, cost) for number, cost in enumerate(costs)],
    }
    title = "The cost of an invoice as the tables grow"
    measured.plots.append(Plot("cost", title, "existing invoices", "ms per invoice", lines))
    return wal


async def _sizes(big: Side) -> Mapping[str, int]:
    """Return the size of each table with its indexes."""
    connection = await connected(big.url)
    sizes: dict[str, int] = {}
    for table in TABLES:
        sizes[table] = await connection.fetchval("SELECT pg_total_relation_size($1::text::regclass)", table)
    await connection.close()
    return sizes


async def _wal(big: Side) -> int:
    connection = await connected(big.url)
    written: int = await connection.fetchval("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    await connection.close()
    return written


async def _bytes(measured: Measured, big: Side, *, grown: Mapping[str, int]) -> int:
    """Report each table's bytes per invoice. Return the number of invoices."""
    async with seen(big.url, big.account.account_id) as connection:
        billed: int = await connection.fetchval("SELECT count(*) FROM invoice")
        for table in TABLES:
            rows = (await connection.fetchval(f"{_ROWS} {table} x")) / billed
            what = f"`{table}`: bytes per invoice with all indexes (rows only: {rows:.0f})"
            measured.amounts.append(Amount(10, what, "B", grown[table] / billed))
    return billed
