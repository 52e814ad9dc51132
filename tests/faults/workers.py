"""The worker processes of the runs `gateway` and `providers`.

The runs kill some of them, and freeze others for longer than their leases.
"""

import asyncio
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fatura.gateways.port import CALL_TIMEOUT_SECONDS
from tests.faults.clock import FastClock
from tests.faults.worker import OpenCalls

CHECK_SECONDS = 0.002
"""Interval between checks for charge calls in progress."""
IN_FLIGHT_AT_LEAST = 3
FREEZE_EVERY = 4


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

    A worker is hit when the run kills or freezes it. `counts` has the number of kills and freezes. `in_calls` counts
    only those that hit a worker with a charge call in progress. `launch` starts a worker, which writes the number of
    its charge calls into a file.
    """

    clock: FastClock
    folder: Path
    launch: Callable[[Path], "subprocess.Popen[bytes]"]
    running: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    frozen: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    started: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    in_calls: Counter[str] = field(default_factory=Counter[str])
    calls_hit: int = 0

    def start(self) -> None:
        self.started += 1
        path = self.folder / f"worker-{self.started}"
        open_calls = OpenCalls.made(path)
        self.running.append(WorkerProcess(self.launch(path), open_calls))

    def is_calling(self) -> bool:
        """Return whether a worker that is not frozen has a charge call in progress."""
        return any(each.open_calls.read() for each in self.running if each not in self.frozen)

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
            victim = await self._busy(rng, calls=IN_FLIGHT_AT_LEAST)
            how = "freeze" if self.counts["freeze"] <= self.counts["kill"] else "kill"
            await self._hit(victim, how, frozen_seconds=rng.uniform(*frozen_seconds))

    async def hit_at_random(
        self,
        rng: random.Random,
        *,
        hits: int,
        pauses: tuple[float, float],
        frozen_seconds: tuple[float, float],
    ) -> None:
        """Kill and freeze workers at random moments.

        The pauses between two hits last a random time in the range `pauses`, in real seconds. After every second
        pause, wait also until some worker has a charge call in progress. Every FREEZE_EVERY-th hit freezes a worker
        as in `kill_and_freeze`; the other hits kill one.
        """
        for number in range(1, hits + 1):
            await asyncio.sleep(rng.uniform(*pauses))
            victim = await self._busy(rng, calls=number % 2)
            await self._hit(
                victim,
                "kill" if number % FREEZE_EVERY else "freeze",
                frozen_seconds=rng.uniform(*frozen_seconds),
            )

    async def _hit(self, victim: WorkerProcess, how: str, *, frozen_seconds: float) -> None:
        """Stop a worker, and count its charge calls in progress. Then kill it, or leave it frozen for a while."""
        open_calls = victim.freeze()
        self.calls_hit += open_calls
        self.counts[how] += 1
        self.in_calls[how] += open_calls > 0
        if how == "freeze":
            await self._freeze(victim, seconds=frozen_seconds)
        else:
            self._replace(victim)

    def kill_one(self, rng: random.Random) -> None:
        """Kill a worker that is not frozen, whether or not it has calls in progress, and start another one."""
        self.counts["kill"] += 1
        self._replace(rng.choice([each for each in self.running if each not in self.frozen]))

    def _replace(self, victim: WorkerProcess) -> None:
        victim.kill()
        self.running.remove(victim)
        self.start()

    async def _busy(self, rng: random.Random, *, calls: int) -> WorkerProcess:
        """Wait until some worker has at least this number of charge calls in progress, and return it."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            busy = [each for each in self.running if each.open_calls.read() >= calls]
            if busy:
                return rng.choice(busy)

    async def _freeze(self, victim: WorkerProcess, *, seconds: float) -> None:
        """Leave a stopped worker frozen for `seconds` of the run's clock, then let it continue.

        When the run sets its clock forward, the freeze becomes shorter in real time, but the time-outs of the worker's
        calls do not. The freeze therefore lasts at least as long as such a time-out in real time.
        """
        clock = self.clock
        thaws_at = clock().timestamp() + seconds
        at_least_until = time.monotonic() + clock.real_seconds(CALL_TIMEOUT_SECONDS + 5)
        self.frozen.append(victim)
        try:
            while (remaining := max(at_least_until - time.monotonic(), thaws_at - clock().timestamp())) > 0:  # noqa: ASYNC110 - the clock has no event to wait for
                await asyncio.sleep(min(remaining, CHECK_SECONDS))
        finally:
            self.frozen.remove(victim)
            victim.process.send_signal(signal.SIGCONT)


@contextmanager
def workers(
    clock: FastClock, folder: Path, launch: Callable[[Path], "subprocess.Popen[bytes]"], *, count: int
) -> Generator[Workers]:
    started = Workers(clock, folder, launch)
    try:
        for _ in range(count):
            started.start()
        yield started
    finally:
        for each in started.running:
            each.kill()
