"""Measure the gain from more workers, compared with one worker.

First, two workers generate invoices on a machine that they share with PostgreSQL. The table also reports how many cores
one worker and PostgreSQL keep busy, because a second worker can use only the free cores. Then four worker hosts, each
in its own network namespace, issue invoices of many accounts at a gateway that answers in 50 ms.
"""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench import all_lanes, cpu, one_lane, outside
from bench.day import connect_gateway, opened_with_gateway
from bench.frame import Amount, Figure, Measured, Options
from bench.namespaces import Host, NoNamespacesError, hosts
from bench.one_lane import worked
from bench.outside import GatewayProcess
from bench.prepared import analyze_filled, connected, prepare
from bench.servers import cloned, open_accounts, prepared, seen, server
from bench.sides import ROUNDS
from fatura.domain.credentials import Mode

WORKERS = 2
HOSTS = 4
BILLED_ACCOUNTS = 20
GATEWAY_SECONDS = 0.05
LEAST_OF_TWO = 1.6
LEAST_OF_FOUR = 3.5
LEAST_OF_ONE = 400
"""Minimum of charges per second that one host makes on two cores, which it shares with PostgreSQL."""
WARM_CHARGES = 50
"""Number of charges that each host makes before the measurement.

These charges are slow, because PostgreSQL plans a statement at each of its first five executions on a connection.
"""
LOOK_EVERY_SECONDS = 0.02
LONGEST_SECONDS = 120

_BIND = "UPDATE subscription SET connection_id = $2 WHERE account_id = $1"
_BILLED = "SELECT sum(last_sequence) FROM account_counter"
_ISSUED = "SELECT count(*) FROM invoice WHERE status = 'issued'"
_READY = "SELECT count(*) FROM invoice WHERE status = 'ready'"


@dataclass(frozen=True, slots=True)
class _Billed:
    """The seconds that billing took, and the CPU seconds of the workers and of PostgreSQL."""

    seconds: float
    by_worker: float
    by_server: float


@dataclass(frozen=True, slots=True)
class _Issued:
    """The charges per second after the warm-up, and the cores that the hosts and PostgreSQL kept busy."""

    per_second: float
    cores: float


def run(options: Options) -> Measured:
    measured = Measured()
    with server() as url:
        asyncio.run(_processes(options, measured, url, due=options.pick(short=12_000, full=100_000)))
        asyncio.run(_hosts(options, measured, url))
    return measured


async def _processes(options: Options, measured: Measured, server_url: str, *, due: int) -> None:
    async def fill(url: str) -> None:
        for account in await open_accounts(url, BILLED_ACCOUNTS):
            async with seen(url, account.account_id) as connection:
                await prepare(connection, account.account_id, due=due // BILLED_ACCOUNTS)

    await prepared(server_url, "billed", fill)
    together, alone = list[float](), list[float]()
    by_worker, by_server, busy = list[float](), list[float](), list[float]()
    for number in range(ROUNDS):
        async with cloned(server_url, "billed") as url:
            one = await _billed(url, 1, due=due)
        async with cloned(server_url, "billed") as url:
            both = await _billed(url, WORKERS, due=due)
        alone.append(due / one.seconds)
        together.append(due / both.seconds)
        by_worker.append(1000 * one.by_worker / due)
        by_server.append(1000 * one.by_server / due)
        busy.append((one.by_worker + one.by_server) / one.seconds)
        options.log(
            f"billing, round {number + 1}: one {alone[-1]:,.0f}/s on {busy[-1]:.2f} cores, "
            f"two {together[-1]:,.0f}/s"
        )
    what = f"{WORKERS} worker processes, {due:,} due of {BILLED_ACCOUNTS} accounts, on {os.cpu_count()} cores"
    measured.figures.append(
        Figure(9, what, "invoices/s", "one worker process", together, alone, at_least=LEAST_OF_TWO)
    )
    measured.amounts += [
        Amount(9, "cores that one worker and its PostgreSQL keep busy", "cores", sorted(busy)[ROUNDS // 2]),
        Amount(9, "CPU of the worker per invoice", "ms", sorted(by_worker)[ROUNDS // 2]),
        Amount(9, "CPU of PostgreSQL per invoice", "ms", sorted(by_server)[ROUNDS // 2]),
    ]


async def _billed(url: str, workers: int, *, due: int) -> _Billed:
    async with AsyncExitStack() as started:
        processes = [
            await started.enter_async_context(one_lane.started(url, "generation", 0)) for _ in range(workers)
        ]
        before, began = await cpu.of_server(url), time.perf_counter()
        for process in processes:
            all_lanes.begin(process)
        await _until(url, _BILLED, due)
        seconds, by_server = time.perf_counter() - began, await cpu.of_server(url) - before
        results = [json.loads((await each.communicate(b""))[0]) for each in processes]
    return _Billed(seconds, sum(each["cpu_seconds"] for each in results), by_server)


async def _until(url: str, counted: str, wanted: int) -> int:
    """Wait until the query `counted`, over all accounts, returns at least `wanted`. Return what it returned."""
    connection = await connected(url)
    await connection.execute("SET app.discover = 'on'")
    async with asyncio.timeout(LONGEST_SECONDS):
        while (count := await connection.fetchval(counted)) < wanted:  # noqa: ASYNC110 - other processes work
            await asyncio.sleep(LOOK_EVERY_SECONDS)
    await connection.close()
    return count


async def _hosts(options: Options, measured: Measured, server_url: str) -> None:
    """Compare four hosts with one. Skip the comparison if this process is not allowed to create network namespaces."""
    try:
        with hosts(HOSTS) as there:
            await _issue_on(options, measured, server_url, there)
    except NoNamespacesError as error:
        measured.left_out.append(f"row 9, {HOSTS} worker hosts: no network namespaces: {error}")


async def _issue_on(options: Options, measured: Measured, server_url: str, there: Sequence[Host]) -> None:
    accounts, seconds = options.pick(short=4_000, full=16_000), options.pick(short=2, full=6)
    async with outside.started(delay=GATEWAY_SECONDS, host="0.0.0.0", state="open") as gateway:  # noqa: S104 - reachable only from this machine's namespaces

        async def fill(url: str) -> None:
            connection = await connected(url)
            async with opened_with_gateway(url, gateway) as deps:
                for account in await open_accounts(url, accounts, mode=Mode.LIVE):
                    connection_id = await connect_gateway(deps, account.account_id)
                    await prepare(connection, account.account_id, due=1, analyze=False)
                    await connection.execute(_BIND, account.account_id, connection_id)
            await analyze_filled(connection)
            await connection.close()
            await worked(url, "generation", accounts)

        await prepared(server_url, "ready", fill)
        of_four, of_one, busy = list[float](), list[float](), list[float]()
        for number in range(ROUNDS):
            async with cloned(server_url, "ready") as url:
                four = await _issued(url, there, gateway, seconds=seconds)
            async with cloned(server_url, "ready") as url:
                one = await _issued(url, there[:1], gateway, seconds=seconds)
            of_four.append(four.per_second)
            of_one.append(one.per_second)
            busy.append(four.cores)
            options.log(
                f"issuing, round {number + 1}: four hosts {of_four[-1]:,.0f}/s on {busy[-1]:.2f} cores, "
                f"one {of_one[-1]:,.0f}/s on {one.cores:.2f}"
            )
    what = f"{HOSTS} worker hosts, one invoice for each of {accounts:,} accounts, a gateway that answers in 50 ms"
    measured.figures.append(Figure(9, what, "charges/s", "one host", of_four, of_one, at_least=LEAST_OF_FOUR))
    measured.amounts += [
        Amount(
            9,
            f"one worker host, one invoice for each of {accounts:,} accounts, the same gateway",
            "charges/s",
            sorted(of_one)[ROUNDS // 2],
            at_least=LEAST_OF_ONE,
        ),
        Amount(9, "cores that the four hosts and PostgreSQL keep busy", "cores", sorted(busy)[ROUNDS // 2]),
    ]


async def _issued(url: str, used: Sequence[Host], gateway: GatewayProcess, *, seconds: int) -> _Issued:
    """Let the hosts issue invoices, and measure for `seconds` after the warm-up."""
    async with AsyncExitStack() as started:
        processes = [
            await started.enter_async_context(
                all_lanes.started(url, f"http://{each.gateway}:{gateway.port}", within=each.within)
            )
            for each in used
        ]
        for process in processes:
            all_lanes.begin(process)
        first = await _until(url, _ISSUED, WARM_CHARGES * len(used))
        before, began = await _spent(url, processes), time.perf_counter()
        await asyncio.sleep(seconds)
        last = await _until(url, _ISSUED, first + 1)
        took = time.perf_counter() - began
        cores = (await _spent(url, processes) - before) / took
        await asyncio.gather(*map(all_lanes.stopped, processes))
        assert await _until(url, _READY, 1), "the hosts ran out of invoices: too few for this machine"
    await gateway.take_calls()
    return _Issued((last - first) / took, cores)


async def _spent(url: str, processes: Sequence[asyncio.subprocess.Process]) -> float:
    return await cpu.of_server(url) + sum(cpu.of_process(each.pid) for each in processes)
