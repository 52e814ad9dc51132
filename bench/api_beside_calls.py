"""Measure API latency while the same process calls misbehaving merchants: 91 kinds of endpoint, three calls to each.

    python -m bench.api_beside_calls [--rounds 5]

A round repeats GET /v1/products: first for ten seconds without calls to merchants, and then while these calls are made,
until the last call has ended. The program compares the latencies.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from fatura import postgres
from fatura.observability import configure_logs
from tests.integration.test_misbehaving_merchants import Merchants, misbehaving_merchants
from tests.support.databases import migrate_as_owner
from tests.support.merchant_clients import ACCOUNT, merchant_client
from tests.support.world import World, open_world

TIMES_OVER = 3
ALONE_SECONDS = 10
PACE_SECONDS = 0.01


async def timed(world: World, stop: asyncio.Event) -> list[float]:
    """Send requests until `stop` is set. Return the latency of each request in ms."""
    latencies_ms: list[float] = []
    while not stop.is_set():
        started = time.perf_counter()
        answer = await world.get("/v1/products")
        latencies_ms.append((time.perf_counter() - started) * 1000)
        assert answer.status == 200
        await asyncio.sleep(PACE_SECONDS)
    return latencies_ms


async def alone(world: World) -> list[float]:
    """Send requests for ALONE_SECONDS while no merchant is called. Return the latency of each request in ms."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(ALONE_SECONDS, stop.set)
    return await timed(world, stop)


async def beside(world: World, merchants: Merchants) -> list[float]:
    """Send requests while all misbehaving endpoints are called, until the last of these calls has ended.

    Return the latency of each request in ms.
    """
    stop = asyncio.Event()
    timing = asyncio.create_task(timed(world, stop))
    client = merchant_client()
    async with client.session(ACCOUNT) as session:
        urls = [*merchants.urls.values()] * TIMES_OVER
        await asyncio.gather(*(session.post(url, body=b"{}", headers={}) for url in urls))
    await client.close()
    stop.set()
    return await timing


def p99(latencies_ms: Sequence[float]) -> float:
    return statistics.quantiles(latencies_ms, n=100)[-1]


async def run(url: str, rounds: int) -> None:
    await migrate_as_owner(url)
    ratios: list[tuple[float, float]] = []
    print("round  p50 ms: alone  beside  ratio   p99 ms: alone  beside  ratio")
    async with open_world(url) as world:
        with misbehaving_merchants() as merchants:
            for number in range(1, rounds + 1):
                single, together = await alone(world), await beside(world, merchants)
                medians = statistics.median(single), statistics.median(together)
                tails = p99(single), p99(together)
                ratios.append((medians[1] / medians[0], tails[1] / tails[0]))
                print(
                    f"{number:5}  {medians[0]:13.2f}  {medians[1]:6.2f}  {ratios[-1][0]:5.2f}"
                    f"  {tails[0]:14.2f}  {tails[1]:6.2f}  {ratios[-1][1]:5.2f}",
                    flush=True,
                )
    for name, kept in zip(("p50", "p99"), zip(*ratios, strict=True), strict=True):
        print(f"{name}: median {statistics.median(kept):.2f}, min {min(kept):.2f}, max {max(kept):.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    configure_logs(level="error")
    with tempfile.TemporaryDirectory(prefix="fatura-bench-") as folder:
        Path(folder).chmod(0o711)
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with postgres.start(Path(folder) / "data") as server, runner:
            runner.run(run(server.url, options.rounds))


if __name__ == "__main__":
    main()
