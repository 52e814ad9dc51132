"""The worker processes of the run `gateway`.

The run kills some of them, and freezes others for longer than their leases.
"""

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

CHECK_SECONDS = 0.002
"""Interval between checks for charge calls in progress."""
IN_FLIGHT_AT_LEAST = 3


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    process: "subprocess.Popen[bytes]"
    open_calls: OpenCalls

    def freeze(self) -> int:
        """Freeze the worker with SIGSTOP. Return the number of its charge calls in progress."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        return self.open_calls.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass(slots=True)
class Workers:
    """The workers of a run. `calls_hit` counts charge calls in progress at the moment when their worker was hit.

    A worker is hit when the run kills or freezes it.
    """

    world: World
    folder: Path
    running: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    frozen: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    started: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    calls_hit: int = 0

    def start(self) -> None:
        self.started += 1
        path = self.folder / f"worker-{self.started}"
        world, open_calls = self.world, OpenCalls.made(path)
        process = worker.start(
            world.url, ring=world.ring, now=world.clock, gateway_url=world.gateway_urls[0], file=path
        )
        self.running.append(WorkerProcess(process, open_calls))

    def unexpected_exits(self) -> list[int]:
        """Return the exit codes of workers that ended by themselves."""
        codes = [each.process.poll() for each in self.running]
        return [code for code in codes if code is not None]

    async def kill_and_freeze(
        self, rng: random.Random, *, until_calls_hit: int, frozen_seconds: tuple[float, float]
    ) -> None:
        """Freeze and kill workers with charge calls in progress, until `until_calls_hit` calls were interrupted.

        At least one worker is frozen, and at least one is killed. Each freeze lasts a random time in the range
        `frozen_seconds`, in seconds of the run's clock. The range must begin above the duration of a lease.
        """
        while self.calls_hit < until_calls_hit or not {"kill", "freeze"} <= set(self.counts):
            victim = await self._busy(rng)
            self.calls_hit += victim.freeze()
            if self.counts["freeze"] <= self.counts["kill"]:
                self.counts["freeze"] += 1
                await self._freeze(victim, seconds=rng.uniform(*frozen_seconds))
            else:
                self.counts["kill"] += 1
                victim.kill()
                self.running.remove(victim)
                self.start()

    def kill_one(self, rng: random.Random) -> None:
        """Kill a worker that is not frozen, whether or not it has calls in progress, and start another one."""
        victim = rng.choice([each for each in self.running if each not in self.frozen])
        self.counts["kill"] += 1
        victim.kill()
        self.running.remove(victim)
        self.start()

    async def _busy(self, rng: random.Random) -> WorkerProcess:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            busy = [each for each in self.running if each.open_calls.read() >= IN_FLIGHT_AT_LEAST]
            if busy:
                return rng.choice(busy)

    async def _freeze(self, victim: WorkerProcess, *, seconds: float) -> None:
        """Leave a stopped worker frozen for `seconds` of the run's clock, then let it continue.

        When the run sets its clock forward, the freeze becomes shorter in real time, but the time-outs of the worker's
        calls do not. The freeze therefore lasts at least as long as such a time-out in real time.
        """
        clock = self.world.clock
        thaws_at = clock().timestamp() + seconds
        at_least_until = time.monotonic() + clock.real_seconds(CALL_TIMEOUT_SECONDS + 5)
        self.frozen.append(victim)
        while (remaining := max(at_least_until - time.monotonic(), thaws_at - clock().timestamp())) > 0:  # noqa: ASYNC110 - the clock has no event to wait for
            await asyncio.sleep(min(remaining, CHECK_SECONDS))
        self.frozen.remove(victim)
        victim.process.send_signal(signal.SIGCONT)


@contextmanager
def workers(world: World, folder: Path, *, count: int) -> Generator[Workers]:
    started = Workers(world, folder)
    try:
        for _ in range(count):
            started.start()
        yield started
    finally:
        for each in started.running:
            each.kill()
