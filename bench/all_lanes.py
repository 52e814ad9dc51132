"""A worker process with all lanes, as `fatura worker`, that also knows the gateway of `bench.outside`.

    FATURA_SECRET_KEYS=… python -m bench.all_lanes URL GATEWAY_URL

Says `ready`, waits for a line on its input, works until the input closes, and prints its CPU seconds.
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


async def work(url: str, gateway_url: str) -> float:
    """Run all lanes from the first line on until the input closes; return the CPU seconds."""
    stop = asyncio.Event()
    async with (
        bootstrap.opened(settings.read(os.environ), url) as deps,
        external_providers(gateway_url)(deps.db) as providers,
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
    """Start the program, ready to be told to go; `within` is a command to start it with, if any."""
    return ready("bench.all_lanes", url, gateway_url, within=within)


def go(process: asyncio.subprocess.Process) -> None:
    """Let it work."""
    assert process.stdin is not None, "asked for"
    process.stdin.write(b"go\n")


async def ended(process: asyncio.subprocess.Process) -> float:
    """End it, and return the CPU seconds that it worked."""
    told, _ = await process.communicate(b"")
    assert process.returncode == 0, "the worker failed"
    return float(told)


def main() -> None:
    """Read the words and work."""
    configure_logs(level="error")
    url, gateway_url = sys.argv[1:]
    print(uvloop.run(work(url, gateway_url)))


if __name__ == "__main__":
    main()
