"""The simulator's one thread of time: who moves next, by a seed; what the clock shows; and the trace of all that.

Every task hands its I/O over as a step. One step is done at a time, and Python rests before the next is chosen, so
that the same seed always gives the same order. A statement that waits for a lock is set aside until it comes free.
"""

import asyncio
import contextlib
import heapq
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeVar

import asyncpg

from tests.faults.sim_machines import HOST, Host, Trace, WorldLoop, python_rests

T = TypeVar("T")

STEP = timedelta(microseconds=900)
"""What one step takes on the world's clock."""
STAYS = 0.8
"""How often the task that moved last goes on, as on a quiet machine; else any of them is drawn."""
LOOK_AFTER_SECONDS = 0.003
"""Real seconds after which PostgreSQL is asked whether a statement waits for a lock."""
LOCK_TIMEOUT = timedelta(seconds=5)
MOST_STEPS = 150_000


class StuckError(Exception):
    """Nobody can move, and no clock will change that."""


class OverError(BaseException):
    """The world has ended: what is left of its tasks ends here."""


@dataclass(slots=True, eq=False)
class Step:
    """Some I/O that waits for its turn; `pid` returns the server process that runs it, when that is a statement."""

    host: Host
    task: object
    label: str
    work: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]
    pid: Callable[[], int | None]
    running: asyncio.Future[Any] | None = None


@dataclass(slots=True, order=True)
class Sleeper:
    """A task that waits for a time, or (`host` is woken) for a hint."""

    until: datetime
    number: int
    host: Host = field(compare=False)
    done: asyncio.Future[None] = field(compare=False)


class Schedule:
    """Moves all tasks of one world, one I/O at a time; `befall` may take a step away before it is done."""

    def __init__(self, rng: random.Random, now: datetime) -> None:
        self.rng = rng
        self.now = now
        self._start = now
        self._loop = asyncio.get_running_loop()
        self.trace = Trace()
        self.over = False
        self.befall: Callable[[Step], Awaitable[bool]] | None = None
        self.control: asyncpg.Connection[Any] | None = None
        self.ticker: asyncpg.Connection[Any] | None = None
        self.others_hold_locks: Callable[[Step], bool] = lambda _step: True
        self.on_lock_timeout: Callable[[], None] = lambda: None
        self._steps: list[Step] = []
        self._blocked: list[Step] = []
        self._sleepers: list[Sleeper] = []
        self._numbers = count()
        self._last: object = None
        self._tick: asyncio.Future[Any] | None = None

    async def io(
        self, label: str, work: Callable[[], Awaitable[T]], *, pid: Callable[[], int | None] = lambda: None
    ) -> T:
        """Do some I/O when its turn has come, while everybody else stands still."""
        await self._live_only()
        done: asyncio.Future[T] = self._loop.create_future()
        self._steps.append(Step(HOST.get(), asyncio.current_task(), label, work, done, pid))
        return await done

    async def sleep(self, seconds: float) -> None:
        """Wait on the world's clock."""
        await self.sleep_until(self.now + timedelta(seconds=seconds))

    async def sleep_until(self, until: datetime) -> None:
        """Wait for a time on the world's clock, or for a hint to this machine."""
        await self._live_only()
        done: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._sleepers, Sleeper(until, next(self._numbers), HOST.get(), done))
        await done

    async def _live_only(self) -> None:
        """Hold the dead for ever, and tell everybody when the world is over."""
        if self.over:
            raise OverError
        if not HOST.get().alive:
            await self._loop.create_future()

    def hasten(self, sleeper_of: Host, until: datetime) -> None:
        """Have a machine's longest sleeper wake earlier: a hint that there is work."""
        mine = [each for each in self._sleepers if each.host is sleeper_of and each.until > until]
        if mine:
            latest = max(mine)
            self._sleepers.remove(latest)
            latest.until = until
            self._sleepers.append(latest)
            heapq.heapify(self._sleepers)

    async def drive(self, main: asyncio.Task[T]) -> T:
        """Move everybody until the main task is done, and return its result. Raises StuckError."""
        while True:
            await python_rests()
            if main.done():
                return main.result()
            if self.trace.length > MOST_STEPS:
                raise StuckError(f"no end after {MOST_STEPS} steps")
            self._steps = [
                each for each in self._steps if not each.done.done()
            ]  # a deadline may have come first
            ready = [each for each in self._steps if self._may_go(each.host)]
            if ready:
                await self._serve(self._choose(ready))
            elif self._blocked:
                await self._time_out_locks()
            else:
                self._pass_time()

    def forget(self, host: Host) -> list[Step]:
        """Drop all that a dead machine's tasks wait for; return its steps that PostgreSQL still works on."""
        self._steps = [each for each in self._steps if each.host is not host]
        self._sleepers = [each for each in self._sleepers if each.host is not host]
        heapq.heapify(self._sleepers)
        left = [each for each in self._blocked if each.host is host]
        self._blocked = [each for each in self._blocked if each.host is not host]
        return left

    async def settle_tick(self) -> None:
        """Wait until the last tick has ended."""
        if self._tick is not None:
            await self._tick

    def end(self) -> None:
        """End the world: whoever waits is told so."""
        self.over = True
        for each in [*self._steps, *self._blocked]:
            if not each.done.done():
                each.done.cancel()
        for sleeper in self._sleepers:
            sleeper.done.cancel()

    def _go_on(self, now: datetime) -> None:
        self.now = now
        if isinstance(self._loop, WorldLoop):
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
        if self.befall is not None and await self.befall(step):
            return
        if step in self._steps:
            self._steps.remove(step)
        self._last = step.task
        self._go_on(self.now + STEP)
        self.trace.add(f"{self.now:%d %H:%M:%S} {step.host.name} {step.label}")
        if not self.others_hold_locks(step):
            await _do_at_once(step)
            return
        step.running = asyncio.ensure_future(step.work())
        if await self._ends_or_waits(step):
            _hand_over(step)
        else:
            self.trace.add(f"{step.host.name} waits for a lock")
            self._blocked.append(step)
        await self._settle_blocked()

    async def _ends_or_waits(self, step: Step) -> bool:
        """Wait until a step's I/O ends (True), or PostgreSQL says that it waits for a lock (False)."""
        assert step.running is not None
        while True:
            if self._tick is None or self._tick.done():
                assert self.ticker is not None
                self._tick = asyncio.ensure_future(
                    self.ticker.execute(f"SELECT pg_sleep({LOOK_AFTER_SECONDS})")
                )
            await asyncio.wait({step.running, self._tick}, return_when=asyncio.FIRST_COMPLETED)
            if step.running.done():
                return True
            if (pid := step.pid()) is not None and await self._is_blocked(pid) and not step.running.done():
                return False

    async def _is_blocked(self, pid: int) -> bool:
        assert self.control is not None
        return bool(await self.control.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid))

    async def _settle_blocked(self) -> None:
        """Hand over what came free: each statement that waited has ended, or waits on."""
        for step in list(self._blocked):
            if step in self._blocked and await self._ends_or_waits(step):
                self._blocked.remove(step)
                _hand_over(step)
                await python_rests()

    async def _time_out_locks(self) -> None:
        """Nobody else moves: the holders are frozen, and PostgreSQL's lock time-out ends the waits."""
        assert self.control is not None
        self._go_on(self.now + LOCK_TIMEOUT)
        step = self._blocked.pop(0)
        assert step.running is not None
        await self.control.execute("SELECT pg_cancel_backend($1)", step.pid())
        with contextlib.suppress(asyncpg.PostgresError):
            await step.running
        self.trace.add(f"{step.host.name} lock time-out")
        self.on_lock_timeout()
        step.done.set_exception(asyncpg.LockNotAvailableError("canceling statement due to lock timeout"))
        await self._settle_blocked()

    def _pass_time(self) -> None:
        """Let the clock go on to whatever comes next, and wake who waited for that."""
        thaws = [each.host.frozen_until for each in self._steps if each.host.frozen_until is not None]
        instants = [*thaws, *(each.until for each in self._sleepers[:1])]
        if not instants:
            raise StuckError("nobody moves, and nobody sleeps")
        self._go_on(max(self.now, min(instants)))
        while self._sleepers and self._sleepers[0].until <= self.now:
            sleeper = heapq.heappop(self._sleepers)
            if sleeper.done.done():
                continue
            if self._may_go(sleeper.host):
                sleeper.done.set_result(None)
                return  # one at a time: Python rests in between
            assert sleeper.host.frozen_until is not None
            sleeper.until = sleeper.host.frozen_until
            heapq.heappush(self._sleepers, sleeper)


async def _do_at_once(step: Step) -> None:
    """Do a step's I/O, which nobody can hold up, and give the task what it came to."""
    try:
        result = await step.work()
    except Exception as error:  # noqa: BLE001 - it is the task's
        if not step.done.done():
            step.done.set_exception(error)
    else:
        if not step.done.done():
            step.done.set_result(result)


def _hand_over(step: Step) -> None:
    """Give the task what its I/O came to."""
    assert step.running is not None
    failure = step.running.exception()
    if step.done.done():
        return
    if failure is not None:
        step.done.set_exception(failure)
    else:
        step.done.set_result(step.running.result())
