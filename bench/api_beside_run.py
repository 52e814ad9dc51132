"""Measure the latency of requests of an account while a worker bills the account, and without a billing run.

The client sends reads at a constant rate. A latency begins at the scheduled time of a read. If the client
sends the read late, the latency includes the delay.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain, cycle, islice

from bench.api_process import Server, fatura_api
from bench.api_requests import PAGE, READ, ApiRequest
from bench.frame import Amount, Figure, Measured, Options
from bench.load import Answered, loaded
from bench.one_lane import started
from bench.prepared import prepare
from bench.servers import open_accounts, prepared, seen, server
from fatura.bootstrap import WORKER_NICENESS
from fatura.usecases.accounts.accounts import OpenedAccount

ROUNDS = 5
CONNECTIONS = 8
PER_SECOND = 160
SECONDS = 8
"""Duration of a measurement. Each of the two KINDS gets 640 requests, of which six exceed the p99."""
MOST_RATIO = 2
SPARE = 5_000
"""Additional due subscriptions per round, because a stopping worker still completes its current batches."""
KINDS = (READ, PAGE)


def run(options: Options) -> Measured:
    with server() as url:
        return asyncio.run(_run(options, url, share=options.pick(short=70_000, full=200_000)))


async def _run(options: Options, server_url: str, *, share: int) -> Measured:
    accounts: list[OpenedAccount] = []

    async def fill(url: str) -> None:
        accounts.extend(await open_accounts(url, 1))
        async with seen(url, accounts[0].account_id) as connection:
            await prepare(connection, accounts[0].account_id, due=ROUNDS * (share + SPARE))

    url = await prepared(server_url, "beside", fill)
    options.log(f"{ROUNDS * (share + SPARE):,} are due")
    requests = await _requests(url, accounts[0])
    idle = {kind: list[float]() for kind in KINDS}
    beside = {kind: list[float]() for kind in KINDS}
    failed = 0
    async with fatura_api(url) as api:
        await _send(api, requests)
        for number in range(ROUNDS):
            _add(idle, await _send(api, requests))
            answered = await _beside_run(api, requests, url=url, share=share)
            failed += sum(count for status, count in answered.statuses.items() if status.startswith("5"))
            _add(beside, answered)
            latencies = "; ".join(
                f"{kind}: {beside[kind][-1]:.1f} ms, idle {idle[kind][-1]:.1f}" for kind in KINDS
            )
            options.log(f"p99, round {number + 1}: {latencies}")
    return _measured(beside, idle, failed=failed)


async def _requests(url: str, account: OpenedAccount) -> Sequence[bytes]:
    async with seen(url, account.account_id) as connection:
        rows = await connection.fetch("SELECT subscription_id FROM subscription LIMIT 500")
    reads = cycle(ApiRequest("GET", f"/v1/subscriptions/{row['subscription_id']}") for row in rows)
    turns = chain.from_iterable(zip(reads, cycle([ApiRequest("GET", "/v1/invoices")]), strict=False))
    return [each.on_the_wire(account) for each in islice(turns, PER_SECOND * SECONDS)]


async def _send(api: Server, requests: Sequence[bytes]) -> Answered:
    return await loaded(api.port, requests, connections=CONNECTIONS, per_second=PER_SECOND)


async def _beside_run(api: Server, requests: Sequence[bytes], *, url: str, share: int) -> Answered:
    """Send requests while a worker bills `share` subscriptions. Billing must take longer than the requests."""
    async with started(url, "generation", share, niceness=WORKER_NICENESS) as worker:
        billing = asyncio.create_task(worker.communicate(b"begin\n"))
        answered = await _send(api, requests)
        assert not billing.done(), "the billing run ended before the measurement"
        await billing
    return answered


def _add(taken: Mapping[str, list[float]], answered: Answered) -> None:
    for place, kind in enumerate(KINDS):
        latencies_ms = answered.latencies_ms[place :: len(KINDS)]
        taken[kind].append(statistics.quantiles(latencies_ms, n=100)[-1])


def _measured(beside: Mapping[str, list[float]], idle: Mapping[str, list[float]], *, failed: int) -> Measured:
    measured = Measured()
    for kind in KINDS:
        what = f"{kind} while a worker bills the account, p99 at {PER_SECOND} requests/s"
        measured.figures.append(
            Figure(5, what, "ms", "no billing run", beside[kind], idle[kind], at_most=MOST_RATIO)
        )
    measured.amounts.append(Amount(5, "answers 5xx while a worker bills", "answers", failed, at_most=0))
    return measured
