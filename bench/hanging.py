"""Measure how long an account waits for its gateway calls while the gateways of at least 1,000 other accounts hang.

One worker process runs all lanes. The program measures two waits of accounts whose gateway answers. The first wait
begins when an invoice becomes due for issuance, and ends when its charge is recorded. The second wait begins when a
poll becomes due, and ends when the answer is recorded. Each wait is compared with the same wait while no gateway hangs.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bench import all_lanes, outside
from bench.day import connect_gateway, opened_with_gateway
from bench.frame import Figure, Measured, Options
from bench.one_lane import worked
from bench.outside import GatewayProcess
from bench.prepared import connected, prepare
from bench.servers import cloned, open_accounts, prepared, server
from bench.sides import ROUNDS
from fatura.domain.credentials import Mode
from fatura.usecases.transaction import LaneName

HANGING = 1_000
SAMPLES = 20
MOST_RATIO = 1.5
LOOK_EVERY_SECONDS = 0.002
LONGEST_SECONDS = 60

_BIND = "UPDATE subscription SET connection_id = $2 WHERE account_id = $1"
_PUT_OFF = "UPDATE invoice SET next_attempt_at = now() + interval '1 year', lease_until = NULL"
_DUE = "UPDATE invoice SET next_attempt_at = now() WHERE account_id = ANY($1::uuid[])"
_UNDONE = "SELECT count(*) FROM invoice WHERE account_id = $1 AND next_attempt_at <= now()"
_NOT_ISSUED = "SELECT count(*) FROM invoice WHERE status <> 'issued'"


@dataclass(frozen=True, slots=True)
class _Gateways:
    """Two gateways and their accounts. Inside `silent.hanging()`, the gateway `silent` answers no call."""

    silent: GatewayProcess
    prompt: GatewayProcess
    hanging: list[UUID]
    waiting: list[UUID]


def run(options: Options) -> Measured:
    measured = Measured()
    with server() as url:
        asyncio.run(_run(options, measured, url, hanging=options.pick(short=HANGING, full=2 * HANGING)))
    return measured


async def _run(options: Options, measured: Measured, server_url: str, *, hanging: int) -> None:
    async with outside.started(state="open") as silent, outside.started(state="open") as prompt:
        gateways = _Gateways(silent, prompt, [], [])
        await prepared(server_url, "ready", lambda url: _fill(url, gateways, hanging=hanging))
        await _compare(options, measured, server_url, gateways, LaneName.ISSUANCE)
        async with cloned(server_url, "ready", apart="issued") as url:
            await _issue_all(url, gateways)
            await _compare(options, measured, server_url, gateways, LaneName.RECONCILIATION)


async def _fill(url: str, gateways: _Gateways, *, hanging: int) -> None:
    """Open accounts, each with one ready invoice whose issuance is not due."""
    opened = await open_accounts(url, hanging + SAMPLES, mode=Mode.LIVE)
    connection = await connected(url)
    async with opened_with_gateway(url, gateways.prompt) as deps:
        for number, account in enumerate(opened):
            hangs = number < hanging
            gateway = gateways.silent if hangs else gateways.prompt
            connection_id = await connect_gateway(deps, account.account_id, settings={"url": gateway.url})
            await prepare(connection, account.account_id, due=1, analyze=False)
            await connection.execute(_BIND, account.account_id, connection_id)
            (gateways.hanging if hangs else gateways.waiting).append(account.account_id)
    await connection.close()
    await worked(url, LaneName.GENERATION, hanging + SAMPLES)
    async with _as_owner(url) as owner:
        await owner.execute(_PUT_OFF)
        await owner.execute("VACUUM ANALYZE")


async def _issue_all(url: str, gateways: _Gateways) -> None:
    async with _as_owner(url) as owner, _working(url, gateways):
        await owner.execute(_DUE, [*gateways.hanging, *gateways.waiting])
        async with asyncio.timeout(LONGEST_SECONDS):
            while await owner.fetchval(_NOT_ISSUED):  # noqa: ASYNC110 - another process works
                await asyncio.sleep(LOOK_EVERY_SECONDS)
        await owner.execute(_PUT_OFF)
        await owner.execute("VACUUM ANALYZE")


async def _compare(
    options: Options, measured: Measured, server_url: str, gateways: _Gateways, lane: LaneName
) -> None:
    name = "ready" if lane is LaneName.ISSUANCE else "ready_issued"
    beside, alone = list[float](), list[float]()
    for number in range(ROUNDS):
        async with cloned(server_url, name) as url:
            beside.append(await _waited_ms(url, gateways, lane, hang=True))
        async with cloned(server_url, name) as url:
            alone.append(await _waited_ms(url, gateways, lane, hang=False))
        options.log(f"{lane}, round {number + 1}: {beside[-1]:.1f} ms, alone {alone[-1]:.1f}")
    ends = "issue" if lane is LaneName.ISSUANCE else "poll"
    what = f"time to {ends} while the gateways of {len(gateways.hanging):,} other accounts hang"
    measured.figures.append(Figure(12, what, "ms", "no gateway hangs", beside, alone, at_most=MOST_RATIO))


async def _waited_ms(url: str, gateways: _Gateways, lane: LaneName, *, hang: bool) -> float:
    """Return the median wait of the accounts whose gateway answers."""
    async with _as_owner(url) as owner, _working(url, gateways):
        await _waits(owner, lane, gateways.waiting[:1])  # the worker's first call is slower
        if not hang:
            return statistics.median(await _waits(owner, lane, gateways.waiting[1:]))
        async with gateways.silent.hanging():
            await owner.execute(_DUE, gateways.hanging)
            await owner.execute("SELECT pg_notify('fatura_work', $1)", lane)
            async with asyncio.timeout(LONGEST_SECONDS):
                while await gateways.silent.unanswered() < len(gateways.hanging):  # noqa: ASYNC110 - another process calls
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
            return statistics.median(await _waits(owner, lane, gateways.waiting[1:]))


async def _waits(owner: Any, lane: LaneName, accounts: Sequence[UUID]) -> list[float]:
    """Make the accounts' invoices due, one after another. Return how many ms the lane took for each account."""
    waits: list[float] = []
    for account_id in accounts:
        began = time.perf_counter()
        await owner.execute(_DUE, [account_id])
        await owner.execute("SELECT pg_notify('fatura_work', $1)", lane)
        async with asyncio.timeout(LONGEST_SECONDS):
            while await owner.fetchval(_UNDONE, account_id):  # noqa: ASYNC110 - another process works
                await asyncio.sleep(LOOK_EVERY_SECONDS)
        waits.append((time.perf_counter() - began) * 1000)
    return waits


@asynccontextmanager
async def _working(url: str, gateways: _Gateways) -> AsyncGenerator[None]:
    async with all_lanes.started(url, gateways.prompt.url) as process:
        all_lanes.begin(process)
        yield
        await all_lanes.stopped(process)


@asynccontextmanager
async def _as_owner(url: str) -> AsyncGenerator[Any]:
    """Yield a connection that sees the rows of all accounts."""
    connection = await connected(url.replace("://fatura@", "://postgres@"))
    try:
        yield connection
    finally:
        await connection.close()
