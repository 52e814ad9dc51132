"""A worker process of the engine for fault runs.

It runs all lanes on the run's clock, and its gateway is in another process.

`python -m tests.faults.worker DATABASE_URL KEY_RING CLOCK GATEWAY_URL FILE` works until its stdin closes. While it
works, FILE contains the number of its charge calls in progress.
"""

import asyncio
import contextlib
import mmap
import struct
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import uvloop

from fatura.gateways.port import Charge, ChargeRequest
from fatura.observability import configure_logs
from fatura.workers.lanes import LANES
from fatura.workers.loop import Loop
from tests.faults import breaks, clock
from tests.faults.clock import FastClock
from tests.faults.engine import open_engine
from tests.faults.external_gateway import external_providers
from tests.faults.gateway.adapter import ProviderGateway

_COUNT = struct.Struct("q")
JUMP_SECONDS = 0.02
"""Interval between two checks whether the clock was set forward."""


class OpenCalls:
    """The number of charge calls in progress, in a file.

    Other processes can read the file while this process is frozen, or after this process was killed.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), _COUNT.size)

    @staticmethod
    def made(path: Path) -> "OpenCalls":
        path.write_bytes(bytes(_COUNT.size))
        return OpenCalls(path)

    def read(self) -> int:
        return _COUNT.unpack_from(self._mapped)[0]

    @contextlib.contextmanager
    def one(self) -> Generator[None]:
        _COUNT.pack_into(self._mapped, 0, self.read() + 1)
        try:
            yield
        finally:
            _COUNT.pack_into(self._mapped, 0, self.read() - 1)


def start(url: str, *, ring: str, now: FastClock, gateway_url: str, file: Path) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "tests.faults.worker", url, ring, str(now), gateway_url, str(file)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


async def work(url: str, *, ring: str, now: FastClock, gateway_url: str, open_calls: OpenCalls) -> None:
    class Counted(ProviderGateway):
        async def create_charge(self, request: ChargeRequest) -> Charge:
            with open_calls.one():
                return await super().create_charge(request)

    loops: list[Loop] = []

    def notify(lane: str) -> None:
        for loop in loops:
            loop.notify(lane)

    stop = asyncio.Event()
    providers = external_providers(gateway_url, clock=now, gateway=Counted)
    async with open_engine(url, ring=ring, clock=now, providers=providers, notify=notify) as deps:
        loops.append(Loop(deps, LANES))
        working = asyncio.create_task(loops[0].run(stop))
        waking = asyncio.create_task(_wake_at_jumps(now, loops[0]))
        await asyncio.to_thread(sys.stdin.read)
        stop.set()
        waking.cancel()
        await working


async def _wake_at_jumps(now: FastClock, loop: Loop) -> None:
    """When the clock is set forward, make all lanes poll immediately."""
    seen = now.jumped_seconds()
    while True:
        await asyncio.sleep(JUMP_SECONDS)
        if seen != now.jumped_seconds():
            seen = now.jumped_seconds()
            for lane in LANES:
                loop.notify(lane.name)


if __name__ == "__main__":
    configure_logs(level="critical")  # injected faults would cause a hundred thousand log lines
    breaks.apply()
    _, to_url, to_ring, to_clock, to_gateway, to_file = sys.argv
    uvloop.run(
        work(
            to_url,
            ring=to_ring,
            now=clock.read(to_clock),
            gateway_url=to_gateway,
            open_calls=OpenCalls(Path(to_file)),
        )
    )
