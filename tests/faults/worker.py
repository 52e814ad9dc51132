"""A worker process of the engine for fault runs.

It runs all lanes on the run's clock, and its gateways are in other processes.

A module of the run calls `main`. `python -m MODULE DATABASE_URL KEY_RING CLOCK GATEWAYS FILE` works until its stdin
closes. While it works, FILE contains the number of its charge calls in progress.
"""

import asyncio
import contextlib
import mmap
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvloop

from fatura.gateways.port import Charge, ChargeRequest, ConnectionConfig, Gateway
from fatura.gateways.provider import Provider, Providers
from fatura.observability import configure_logs
from fatura.store.db import Database
from fatura.workers.lanes import LANES
from fatura.workers.loop import Loop
from tests.faults import breaks, clock
from tests.faults.clock import FastClock
from tests.faults.engine import open_engine

OpenProviders = Callable[[Database], AbstractAsyncContextManager[Providers]]
"""Opens the providers of an engine."""
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


def start(
    module: str, url: str, *, ring: str, now: FastClock, gateways: str, file: Path
) -> "subprocess.Popen[bytes]":
    """Start a worker. The `module` calls `main`, and says there what the text `gateways` means."""
    words = [sys.executable, "-m", module, url, ring, str(now), gateways, str(file)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def main(opener: Callable[[str, FastClock], OpenProviders]) -> None:
    """Work as the command line says. `opener` gets the text `gateways` of `start`."""
    configure_logs(level="critical")  # injected faults would cause a hundred thousand log lines
    breaks.apply()
    _, url, ring, to_clock, gateways, file = sys.argv
    now = clock.read(to_clock)
    opened = _counted(opener(gateways, now), OpenCalls(Path(file)))
    uvloop.run(_work(url, ring=ring, now=now, providers=opened))


async def _work(url: str, *, ring: str, now: FastClock, providers: OpenProviders) -> None:
    loops: list[Loop] = []

    def notify(lane: str) -> None:
        for loop in loops:
            loop.notify(lane)

    stop = asyncio.Event()
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


class _Counted:
    """An adapter whose charge calls are counted while they are in progress."""

    def __init__(self, gateway: Gateway, open_calls: OpenCalls) -> None:
        self._gateway = gateway
        self._open_calls = open_calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)

    async def create_charge(self, request: ChargeRequest) -> Charge:
        with self._open_calls.one():
            return await self._gateway.create_charge(request)


def _counted(opens: OpenProviders, open_calls: OpenCalls) -> OpenProviders:
    @contextlib.asynccontextmanager
    async def opened(db: Database) -> AsyncGenerator[Providers]:
        async with opens(db) as found:
            yield {
                name: replace(each, factory=partial(_counting, each, open_calls))
                for name, each in found.items()
            }

    return opened


def _counting(provider: Provider, open_calls: OpenCalls, config: ConnectionConfig) -> Gateway:
    return cast("Gateway", _Counted(provider.factory(config), open_calls))
