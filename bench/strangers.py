"""Measure one account's latency while strangers and another account attack the API, and without an attack.

The API runs in one process with its default limits. `bench.attack` says what the attackers do.
"""

import asyncio
import json
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median

from bench import cpu
from bench.api_process import Server, fatura_api
from bench.api_requests import READ, ApiRequest
from bench.frame import Amount, Figure, Measured, Options
from bench.load import Answered, loaded
from bench.prepared import prepare
from bench.servers import open_accounts, prepared, seen, server
from fatura.usecases.accounts.accounts import OpenedAccount

ROUNDS = 5
CONNECTIONS = 4
PER_SECOND = 80
SECONDS = 8
"""Duration of a measurement. It has 640 requests, of which six exceed the p99."""
MOST_RATIO = 3
SUBSCRIPTIONS = 2_000


def run(options: Options) -> Measured:
    with server() as url:
        return asyncio.run(_run(options, url, seconds=options.pick(short=SECONDS, full=4 * SECONDS)))


async def _run(options: Options, server_url: str, *, seconds: int) -> Measured:
    accounts: list[OpenedAccount] = []

    async def fill(url: str) -> None:
        accounts.extend(await open_accounts(url, 2))
        for each in accounts:
            async with seen(url, each.account_id) as connection:
                await prepare(connection, each.account_id, due=SUBSCRIPTIONS)

    url = await prepared(server_url, "strangers", fill)
    requests = await _requests(url, accounts[0], count=PER_SECOND * seconds)
    attacked, quiet, loads, failed = list[float](), list[float](), list[_Load](), 0
    async with fatura_api(url, limits=True) as api:
        await _send(api, requests)
        for number in range(ROUNDS):
            quiet.append(_p99_ms(await _send(api, requests)))
            answered, load, attacks = await _attacked(api, requests, key=accounts[1].api_key)
            loads.append(load)
            attacked.append(_p99_ms(answered))
            failed += _failures([answered.statuses, *attacks.values()])
            options.log(f"p99, round {number + 1}: {attacked[-1]:.1f} ms, quiet {quiet[-1]:.1f}; {attacks}")
    what = f"{READ} while strangers and another account attack the API, p99 at {PER_SECOND} requests/s"
    return Measured(
        figures=[Figure(15, what, "ms", "no attack", attacked, quiet, at_most=MOST_RATIO)],
        amounts=[
            Amount(15, "answers 5xx during the attacks", "answers", failed, at_most=0),
            Amount(
                15, "cores that the API uses during the attacks", "cores", median(each.used for each in loads)
            ),
            Amount(
                15,
                "cores that the API waits for during the attacks",
                "cores",
                median(each.waited for each in loads),
            ),
        ],
    )


async def _requests(url: str, account: OpenedAccount, *, count: int) -> Sequence[bytes]:
    async with seen(url, account.account_id) as connection:
        rows = await connection.fetch("SELECT subscription_id FROM subscription LIMIT 500")
    reads = cycle(ApiRequest("GET", f"/v1/subscriptions/{row['subscription_id']}") for row in rows)
    return [each.on_the_wire(account) for each in islice(reads, count)]


async def _send(api: Server, requests: Sequence[bytes]) -> Answered:
    answered = await loaded(api.port, requests, connections=CONNECTIONS, per_second=PER_SECOND)
    assert set(answered.statuses) <= {"200", "503"}, answered.statuses
    return answered


@dataclass(frozen=True, slots=True)
class _Load:
    """How many cores the API used, and for how many it waited because other processes used them."""

    used: float
    waited: float


async def _attacked(
    api: Server, requests: Sequence[bytes], *, key: str
) -> tuple[Answered, _Load, Mapping[str, Mapping[str, int]]]:
    """Send requests during the attacks. Also return the API's load, and the numbers of answers by attack and status."""
    words = ("bench.attack", str(api.port), str(api.metrics_port), key)
    attack = await asyncio.create_subprocess_exec(sys.executable, "-m", *words, stdin=PIPE, stdout=PIPE)
    assert attack.stdout is not None
    assert (await attack.stdout.readline()) == b"begun\n", "the attack failed"
    used, waited, began = cpu.of_process(api.pid), cpu.waited(api.pid), time.perf_counter()
    answered = await _send(api, requests)
    seconds = time.perf_counter() - began
    load = _Load((cpu.of_process(api.pid) - used) / seconds, (cpu.waited(api.pid) - waited) / seconds)
    output, _ = await attack.communicate(b"")  # closes its stdin, which ends the attack
    assert attack.returncode == 0, "the attack failed"
    return answered, load, json.loads(output)


def _p99_ms(answered: Answered) -> float:
    return statistics.quantiles(answered.latencies_ms, n=100)[-1]


def _failures(counts: Sequence[Mapping[str, int]]) -> int:
    every = sum((Counter(each) for each in counts), Counter[str]())
    return sum(count for status, count in every.items() if status.startswith("5"))
