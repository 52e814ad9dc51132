"""The simulator's scheduler. A seed determines which task continues next and what the clock shows.

Every I/O of a task is a step. One step is executed at a time, and all ready tasks run before the next step is chosen. A
statement that waits for a lock is set aside until it gets the lock.
"""

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from signal import SIGCONT, SIGSTOP
from typing import Any, TypeVar

import asyncpg

from tests.faults.simulator.machines import HOST, Host, Trace, WorldLoop, drain_ready
from tests.faults.simulator.steps import Step, do_at_once, hand_over, signal

T = TypeVar("T")

STEP = timedelta(microseconds=900)
"""Time that one step takes on the world's clock."""
STAYS = 0.8
"""Chance that the task of the previous step continues. Otherwise a random task continues."""
LOCK_TIMEOUT = timedelta(seconds=5)
MOST_STEPS = 150_000


class StuckError(Exception):
    """No task can ever continue, or the world has not ended after MOST_STEPS steps."""


class WorldEndedError(BaseException):
    """Raised in a task that requests I/O or a pause after its world has ended."""


@dataclass(slots=True, order=True)
class Sleeper:
    """A task that waits until a time. A notification to its machine may wake it earlier."""

    until: datetime
    number: int
    host: Host = field(compare=False)
    done: asyncio.Future[None] = field(compare=False)


class Schedule:
    """Runs all tasks of one world, one I/O at a time.

    `inject` is called before each step. If it injects a fault, it returns true, and the step is not executed now.
    """

    def __init__(self, rng: random.Random, now: datetime, loop: WorldLoop) -> None:
        self.rng = rng
        self.now = now
        self._start = now
        self._loop = loop
        self.trace = Trace()
        self.over = False
        self.inject: Callable[[Step], Awaitable[bool]] | None = None
        self.watch: asyncpg.Connection[Any] | None = None
        self.others_hold_locks: Callable[[Step], bool] = lambda _step: True
        self.locks_were_freed = False
        self.on_lock_timeout: Callable[[], None] = lambda: None
        self._steps: list[Step] = []
        self._blocked: list[Step] = []
        self._sleepers: list[Sleeper] = []
        self._numbers = count()
        self._last: object = None

    async def io(
        self, label: str, work: Callable[[], Awaitable[T]], *, pid: Callable[[], int | None] | None = None
    ) -> T:
        """Execute some I/O when this task is chosen.

        For a statement that may wait for a lock, `pid` returns the id of its PostgreSQL server process. A caller that
        ends a transaction must set `locks_were_freed`, so that the statements that waited for its locks continue.
        """
        await self.live_only()
        done: asyncio.Future[T] = self._loop.create_future()
        self._steps.append(Step(HOST.get(), asyncio.current_task(), label, work, done, pid))
        return await done

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.now + timedelta(seconds=seconds))

    async def sleep_until(self, until: datetime) -> None:
        await self.live_only()
        done: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._sleepers, Sleeper(until, next(self._numbers), HOST.get(), done))
        await done

    async def live_only(self) -> None:
        """Block the calling task forever if its machine is dead. Raise WorldEndedError if the world has ended."""
        if self.over:
            raise WorldEndedError
        if not HOST.get().alive:
            await self._loop.create_future()

    def wake_early(self, sleeper_of: Host, until: datetime) -> None:
        """Let the task of `sleeper_of` that would wake last wake at `until` instead. Never make a task wake later."""
        mine = [each for each in self._sleepers if each.host is sleeper_of and each.until > until]
        if mine:
            latest = max(mine)
            self._sleepers.remove(latest)
            latest.until = until
            self._sleepers.append(latest)
            heapq.heapify(self._sleepers)

    async def drive(self, main: asyncio.Task[T]) -> T:
        """Run all tasks until the main task is done, and return its result. Raises StuckError.

        The clock advances after each step. Sleeping tasks whose time has come then run before the next step.
        """
        while True:
            await drain_ready()
            if main.done():
                return main.result()
            if self.trace.length > MOST_STEPS:
                raise StuckError(f"no end after {MOST_STEPS} steps")
            if self._wake_one():
                continue
            if any(each.done.done() for each in self._steps):  # an engine time-out canceled a step
                self._steps = [each for each in self._steps if not each.done.done()]
            ready = [each for each in self._steps if self._may_go(each.host)]
            if ready:
                await self._serve(self._choose(ready))
            elif self._blocked:
                await self._time_out_locks()
            else:
                self._pass_time()

    def forget(self, host: Host) -> list[Step]:
        """Remove a dead machine's steps and sleeping tasks. Return its steps that wait for locks in PostgreSQL."""
        self._steps = [each for each in self._steps if each.host is not host]
        self._sleepers = [each for each in self._sleepers if each.host is not host]
        heapq.heapify(self._sleepers)
        left = [each for each in self._blocked if each.host is host]
        self._blocked = [each for each in self._blocked if each.host is not host]
        return left

    def end(self) -> None:
        self.over = True
        for step in self._blocked:
            signal(step, SIGCONT)
        for each in [*self._steps, *self._blocked]:
            if not each.done.done():
                each.done.cancel()
        for sleeper in self._sleepers:
            sleeper.done.cancel()

    def _go_on(self, now: datetime) -> None:
        self.now = now
        self._loop.seconds = (now - self._start).total_seconds()

    def _may_go(self, host: Host) -> bool:
        return host.frozen_until is None or host.frozen_until <= self.now

    def _choose(self, ready: list[Step]) -> Step:
        if len(ready) == 1:
            return ready[0]
        if self.rng.random() < STAYS:
            for each in ready:
                if each.task is self._last:
                    return each
        return self.rng.choice(ready)

    async def _serve(self, step: Step) -> None:
        if self.inject is not None and await self.inject(step):
            await self._settle_blocked()
            return
        self._steps.remove(step)
        self._last = step.task
        self.trace.add(f"{self._loop.seconds:.4f} {step.host.name} {step.label}")
        if step.pid is not None and self.others_hold_locks(step):
            step.running = asyncio.ensure_future(step.work())
            if await self._ends_or_waits(step):
                hand_over(step)
            else:
                self.trace.add(f"{step.host.name} waits for a lock")
                self._blocked.append(step)
                signal(step, SIGSTOP)
        else:
            await do_at_once(step)
        await self._settle_blocked()
        self._go_on(self.now + STEP)

    async def _ends_or_waits(self, step: Step) -> bool:
        """Return True when a step's I/O has ended, False when it waits for a lock."""
        assert step.running is not None
        assert step.pid is not None
        while True:
            await self._loop.done_or_quiet(step.running)
            if step.running.done():
                return True
            if (pid := step.pid()) is not None and await self._is_blocked(pid) and not step.running.done():
                return False

    async def _is_blocked(self, pid: int) -> bool:
        assert self.watch is not None
        return bool(await self.watch.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid))

    async def _settle_blocked(self) -> None:
        """If locks were freed, let the statements that wait for locks continue, one after another.

        Two statements thus never compete for a row. A statement that still does not get its lock is stopped again.
        """
        if not self.locks_were_freed:
            return
        self.locks_were_freed = False
        for step in list(self._blocked):
            if step not in self._blocked:
                continue
            signal(step, SIGCONT)
            if await self._ends_or_waits(step):
                self._blocked.remove(step)
                hand_over(step)
                await drain_ready()
            else:
                signal(step, SIGSTOP)

    async def _time_out_locks(self) -> None:
        """End the oldest lock wait as PostgreSQL's lock time-out does. Called when no other task can continue."""
        step = self._blocked.pop(0)
        await self.cancel(step)
        self.trace.add(f"{step.host.name} lock time-out")
        self.on_lock_timeout()
        if not step.done.done():
            step.done.set_exception(asyncpg.LockNotAvailableError("canceling statement due to lock timeout"))
        await self._settle_blocked()
        self._go_on(self.now + LOCK_TIMEOUT)

    async def cancel(self, step: Step) -> None:
        assert self.watch is not None
        assert step.pid is not None
        assert step.running is not None
        signal(step, SIGCONT)
        await self.watch.execute("SELECT pg_cancel_backend($1)", step.pid())
        await asyncio.wait({step.running})
        step.running.exception()

    def _pass_time(self) -> None:
        thaws = [each.host.frozen_until for each in self._steps if each.host.frozen_until is not None]
        instants = [*thaws, *(each.until for each in self._sleepers[:1])]
        if not instants:
            raise StuckError("no task can move, and none sleeps")
        self._go_on(max(self.now, min(instants)))

    def _wake_one(self) -> bool:
        """Wake one sleeping task whose time has come. Return False if there is none."""
        while self._sleepers and self._sleepers[0].until <= self.now:
            sleeper = heapq.heappop(self._sleepers)
            if sleeper.done.done():
                continue
            if self._may_go(sleeper.host):
                sleeper.done.set_result(None)
                return True
            assert sleeper.host.frozen_until is not None
            sleeper.until = sleeper.host.frozen_until
            heapq.heappush(self._sleepers, sleeper)
        return False
