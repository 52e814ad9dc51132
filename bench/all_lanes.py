"""A worker process like `fatura worker`, with the gateway of `bench.outside` as an additional provider.

    FATURA_SECRET_KEYS=… python -m bench.all_lanes URL GATEWAY_URL

The process prints `ready`, waits for a line on stdin, runs the lanes until stdin closes, and prints its CPU seconds.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import uvloop

from bench.worker_process import ready
from fatura import bootstrap, settings
from fatura.observability import configure_logs
from fatura.store import notify
from fatura.workers.lanes import LANES
from fatura.workers.loop import Loop
from tests.faults.external_gateway import external_providers

CONNECTIONS = 4_000
"""Maximum number of open calls to gateways. The engine's own limits are lower, so this one delays no call."""


async def work(url: str, gateway_url: str) -> float:
    stop = asyncio.Event()
    async with (
        bootstrap.opened(settings.read(os.environ), url) as deps,
        external_providers(gateway_url, connections=CONNECTIONS)(deps.db) as providers,
    ):
        loop = Loop(replace(deps, providers={**deps.providers, **providers}), LANES)
        listening = asyncio.create_task(notify.listen(url, loop.notify))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.process_time()
        running = asyncio.create_task(loop.run(stop))
        await asyncio.to_thread(sys.stdin.read)
        took = time.process_time() - began
        stop.set()
        await running
        listening.cancel()
        return took


def started(
    url: str, gateway_url: str, *, within: Sequence[str] = ()
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Start this program and wait until it is ready. `within` is a command prefix, such as `ip netns exec NAME`."""
    return ready("bench.all_lanes", url, gateway_url, within=within)


def begin(process: asyncio.subprocess.Process) -> None:
    """Let a process that has printed `ready` begin its work."""
    assert process.stdin is not None, "it is a pipe"
    process.stdin.write(b"begin\n")


async def stopped(process: asyncio.subprocess.Process) -> float:
    """Stop a process, and return the CPU seconds that it used."""
    output, _ = await process.communicate(b"")
    assert process.returncode == 0, "the worker failed"
    return float(output)


def main() -> None:
    configure_logs(level="error")
    url, gateway_url = sys.argv[1:]
    print(uvloop.run(work(url, gateway_url)))


if __name__ == "__main__":
    main()
