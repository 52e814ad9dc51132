"""A worker process that runs one lane, and measures its time, its CPU time and its memory.

    FATURA_SECRET_KEYS=… python -m bench.one_lane URL LANE COUNT

The process prints `ready`, waits for a line on stdin, works, and prints the result as JSON. It stops after COUNT units
of work, which are invoices in the lane `generation`. With COUNT 0, it works until stdin closes.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvloop

from bench.servers import opened
from bench.worker_process import ready
from fatura.domain.account import Account
from fatura.observability import configure_logs
from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES
from fatura.workers.loop import Loop

SAMPLES = 100
PAGE_BYTES = 4096
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Worked:
    """A worker's result. After each percent of the work, `instants` has the elapsed seconds, `megabytes` the memory."""

    seconds: float
    cpu_seconds: float
    instants: list[float]
    megabytes: list[float]


async def work(url: str, lane_name: str, count: int) -> Worked:
    """Run the lane as `fatura worker` does, until `count` units of work are done or, with 0, until stdin closes."""
    lane = next(each for each in LANES if each.name == lane_name)
    stop, done = asyncio.Event(), 0
    instants: list[float] = []
    megabytes: list[float] = []
    began = 0.0

    async def counted(deps: Deps, account: Account) -> int:
        nonlocal done
        did = await lane.run(deps, account)
        done += did
        if did and done * SAMPLES >= count * (len(instants) + 1):
            instants.append(time.perf_counter() - began)
            megabytes.append(_resident())
        if count and done >= count:
            stop.set()
        return did

    niceness = int(os.environ.get("BENCH_NICENESS", "0"))
    os.nice(niceness)
    async with opened(url, connections=10, niceness=niceness) as deps:
        loop = Loop(deps, [replace(lane, run=counted)])
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, cpu_began = time.perf_counter(), time.process_time()
        working = asyncio.create_task(loop.run(stop))
        if not count:
            await asyncio.to_thread(sys.stdin.read)
            stop.set()
        await working
        return Worked(time.perf_counter() - began, time.process_time() - cpu_began, instants, megabytes)


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_BYTES / MEGABYTE


def started(
    url: str, lane: str, count: int, *, niceness: int = 0
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Start the worker. A positive `niceness` lowers the worker's priority, as `fatura up` does with its worker."""
    return ready("bench.one_lane", url, lane, str(count), niceness=niceness)


async def worked(url: str, lane: str, count: int) -> Worked:
    async with started(url, lane, count) as process:
        output, _ = await process.communicate(b"begin\n")
    return Worked(**json.loads(output))


def main() -> None:
    configure_logs(level="error")
    url, lane, count = sys.argv[1:]
    result: Any = uvloop.run(work(url, lane, int(count)))
    print(json.dumps({name: getattr(result, name) for name in Worked.__slots__}))


if __name__ == "__main__":
    main()
