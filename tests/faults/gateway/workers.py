"""The workers of the lying gateway's trial: started, killed, frozen past their leases, and waited for."""

import asyncio
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fatura.gateways.port import CALL_TIMEOUT_SECONDS
from tests.faults import worker
from tests.faults.gateway.world import World
from tests.faults.worker import OpenCalls

LOOK_SECONDS = 0.002
"""How often it is looked whether a worker has charges on their way."""
IN_FLIGHT_AT_LEAST = 3


@dataclass(frozen=True, slots=True)
class Running:
    """One worker process, and the count of its charges on their way."""

    process: "subprocess.Popen[bytes]"
    open_calls: OpenCalls

    def stop_still(self) -> int:
        """Freeze it; return how many charges were on their way."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        return self.open_calls.read()

    def kill(self) -> None:
        """Kill it with -9, and close our end of its input."""
        self.process.kill()
        self.process.communicate()


@dataclass(slots=True)
class Workers:
    """Workers of one world; `hits` counts the charges that were on their way in a worker as it was struck."""

    world: World
    folder: Path
    running: list[Running] = field(default_factory=list[Running])
    frozen: list[Running] = field(default_factory=list[Running])
    started: int = 0
    strikes: Counter[str] = field(default_factory=Counter[str])
    hits: int = 0

    def start(self) -> None:
        """Start one more."""
        self.started += 1
        path = self.folder / f"worker-{self.started}"
        world, open_calls = self.world, OpenCalls.made(path)
        process = worker.start(
            world.url, ring=world.ring, now=world.clock, gateway_url=world.gateway_url, file=path
        )
        self.running.append(Running(process, open_calls))

    def died(self) -> list[int]:
        """Return the exit codes of workers that nobody killed."""
        codes = [each.process.poll() for each in self.running]
        return [code for code in codes if code is not None]

    async def strike(
        self, rng: random.Random, *, until_hits: int, frozen_seconds: tuple[float, float]
    ) -> None:
        """Kill and freeze workers while they have charges on their way, until enough charges were hit.

        They stand still for longer than a lease, between two numbers of seconds of the run's clock.
        """
        while self.hits < until_hits or not {"kill", "freeze"} <= set(self.strikes):
            struck = await self._busy(rng)
            self.hits += struck.stop_still()
            if self.strikes["freeze"] <= self.strikes["kill"]:
                self.strikes["freeze"] += 1
                await self._freeze(struck, seconds=rng.uniform(*frozen_seconds))
            else:
                self.strikes["kill"] += 1
                struck.kill()
                self.running.remove(struck)
                self.start()

    async def _busy(self, rng: random.Random) -> Running:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            busy = [each for each in self.running if each.open_calls.read() >= IN_FLIGHT_AT_LEAST]
            if busy:
                return rng.choice(busy)

    async def _freeze(self, struck: Running, *, seconds: float) -> None:
        """Let it stand still for so long on the run's clock, and for long enough that its own timers run out."""
        clock = self.world.clock
        thaws_at = clock().timestamp() + seconds
        at_least_until = time.monotonic() + clock.real_seconds(CALL_TIMEOUT_SECONDS + 5)
        self.frozen.append(struck)
        while (left := max(at_least_until - time.monotonic(), thaws_at - clock().timestamp())) > 0:  # noqa: ASYNC110 - clocks set no events
            await asyncio.sleep(min(left, LOOK_SECONDS))
        self.frozen.remove(struck)
        struck.process.send_signal(signal.SIGCONT)


@contextmanager
def workers(world: World, folder: Path, *, count: int) -> Generator[Workers]:
    """Start some workers, and kill them in the end."""
    started = Workers(world, folder)
    try:
        for _ in range(count):
            started.start()
        yield started
    finally:
        for each in started.running:
            each.kill()
