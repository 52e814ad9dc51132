"""A deterministic stepper for concurrent tasks: only one task runs at a time, from one statement to the next.

The caller chooses which task runs next. The caller can therefore try every order, draw random orders, or repeat an
order.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from tests.faults.orders.stepping_connection import connection_class

T = TypeVar("T")

Choose = Callable[[Sequence[str]], str]
"""A function that chooses the next thread, given the sorted names of the threads that are not blocked."""

LOCK_SETTINGS = {"deadlock_timeout": "1ms"}
"""Server settings. A blocked statement checks for a deadlock after 1 ms, before any other thread continues.

The statement that completes a deadlock therefore always detects the deadlock and fails.
"""

_LOOK_AFTER_SECONDS = 0.002
"""After this time, the stepper queries PostgreSQL to find out whether a statement waits for a lock."""
_DEADLOCK_LOOKED_SECONDS = 0.01
"""After this time, a blocked statement has made its only deadlock check."""
_PATIENCE_SECONDS = 2
"""Maximum time that an actor may wait for a socket or a timer before the stepper lets other actors continue."""
_STUCK_SECONDS = 60


class StuckError(Exception):
    """No task reached its next step for a minute."""


@dataclass(frozen=True, slots=True)
class Step:
    """An executed step: the name of its task, its label, and whether it waited for a lock of another task."""

    thread: str
    label: str
    waited: bool

    def __str__(self) -> str:
        return f"{self.thread}: {self.label}{' (waits)' if self.waited else ''}"


After = Callable[[Step], Awaitable[None]]
"""A function that is called after every step."""


@dataclass(slots=True, eq=False)
class _Thread:
    """A task of an actor. It waits to be chosen (`gate`), executes a step (`at_work`), or does neither.

    `pid` is the id of the PostgreSQL server process that executes the task's statement.
    """

    name: str
    label: str = ""
    gate: asyncio.Future[None] | None = None
    at_work: bool = False
    pid: int | None = None
    waits_for: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class _Actor:
    """A simulated process. Its asyncio tasks are called threads, and named in the order of their first I/O."""

    name: str
    begin: asyncio.Event
    threads: WeakKeyDictionary[asyncio.Task[Any], _Thread]
    task: asyncio.Task[Any] | None = None
    named: int = 0

    def thread(self) -> _Thread:
        """Return the thread of the running task.

        An actor's first thread has the actor's name. Its other threads are named `name.2`, `name.3` and so on.
        """
        task = asyncio.current_task()
        assert task is not None, "actors do I/O in tasks"
        if task not in self.threads:
            self.named += 1
            name = self.name if self.named == 1 else f"{self.name}.{self.named}"
            self.threads[task] = _Thread(name)
        return self.threads[task]


class Stepper:
    """Stops every actor before each step until the caller chooses this step.

    1. Pass `connection_class` to `store.db.connect`. Actors may share a pool, or have their own pools.

    2. `act(name, action)` registers an actor, before or during a run. The returned task gets the result or
    exception of `action`.

    3. `await run(choose)` runs all actors to their end and returns the executed steps. Then new actors may be
    registered.

    Every network access of an actor must be a step. Statements are steps already; other calls must be made inside
    `doing`. Pools must be opened first (`stepping_connection.open_whole`), because connecting is not a step. Code
    outside actors is not stopped. The event loop must be asyncio's own, not uvloop.
    """

    def __init__(self, control: "asyncpg.Connection[Any]") -> None:
        """The stepper queries lock waits on `control`, a connection of a superuser or of the actors' role."""
        self._control = control
        self._actors: list[_Actor] = []
        self._changed = asyncio.Event()
        self._pids: frozenset[int] = frozenset()
        self.trace: list[Step] = []
        self.connection_class = connection_class(self.doing)

    @property
    def waiting(self) -> dict[str, str]:
        """Return the label of the next step of each thread that waits to be chosen."""
        return {thread.name: thread.label for thread in self._threads() if thread.gate is not None}

    def act(self, name: str, action: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Register an actor, which `run` starts. The returned task ends before `run` returns."""
        assert all(name != each.name for each in self._actors), f"two actors named {name}"
        actor = _Actor(name, asyncio.Event(), WeakKeyDictionary())
        self._actors.append(actor)

        async def acting() -> T:
            _ACTOR.set(actor)
            await actor.begin.wait()
            try:
                return await action()
            finally:
                self._changed.set()

        actor.task = asyncio.get_running_loop().create_task(acting(), name=name)
        return actor.task

    async def run(self, choose: Choose, *, after: After | None = None) -> Sequence[Step]:
        """Run the actors one step at a time until all are done. `after` is called after every step.

        If an actor raises an exception, the task that `act` returned raises it, and `run` does not. Raises StuckError.
        """
        self.trace = []
        while True:
            await self._begin()
            ready = sorted(self.waiting)
            if ready:
                await self._grant(choose(ready))
                if after is not None:
                    await after(self.trace[-1])
            elif all(each.task is not None and each.task.done() for each in self._actors):
                self._actors.clear()
                return self.trace
            else:  # all threads wait for a timer, or for locks of other sessions
                await self._change()

    async def step(self, label: str) -> None:
        """Wait until this thread is chosen. The code up to its next step then runs alone."""
        actor = _ACTOR.get()
        if actor is not None:
            await self._ask(actor.thread(), label)

    @asynccontextmanager
    async def doing(
        self, label: str, *, pid: int | None = None, waits_for_turn: bool = True
    ) -> AsyncGenerator[None]:
        """Wait until this thread is chosen, then do I/O inside the block.

        Other threads wait until the I/O ends or is blocked by a lock.

        `pid` is the server process of a statement. With `waits_for_turn=False`, the I/O starts immediately, even if
        this thread is not chosen.
        """
        actor = _ACTOR.get()
        if actor is None:
            yield
            return
        thread = actor.thread()
        if waits_for_turn:
            await self._ask(thread, label)
        thread.at_work, thread.pid = True, pid
        if pid is not None:
            self._pids |= {pid}
        try:
            yield
        finally:
            thread.at_work, thread.pid, thread.waits_for = False, None, frozenset()
            self._changed.set()

    async def _ask(self, thread: _Thread, label: str) -> None:
        assert not thread.at_work, "a step within a step would never be chosen"
        thread.label = " ".join(label.split())[:120]
        thread.gate = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            await thread.gate
        finally:
            thread.gate = None

    async def _begin(self) -> None:
        await self._settle()
        for actor in self._actors:
            if not actor.begin.is_set():
                actor.begin.set()
                await self._settle()

    async def _grant(self, name: str) -> None:
        thread = next(each for each in self._threads() if each.gate is not None and each.name == name)
        assert thread.gate is not None, "only waiting threads are chosen"
        thread.gate.set_result(None)
        label = thread.label
        await self._settle()
        self.trace.append(Step(name, label, waited=bool(thread.waits_for)))

    async def _settle(self) -> None:
        """Wait until every thread has reached its next step, ended, or been blocked by another thread's lock."""
        loop = asyncio.get_running_loop()
        patient_until = loop.time() + _PATIENCE_SECONDS
        while True:
            await _drain_ready()
            at_work = [each for each in self._threads() if each.at_work]
            is_settled = not at_work or await self._still_wait(at_work)
            is_all_here = loop.time() > patient_until or not any(_is_elsewhere(each) for each in self._actors)
            if is_settled and is_all_here:
                return
            if not await self._changes_within(_LOOK_AFTER_SECONDS) and not is_settled:
                await self._mark_waiting(at_work)

    async def _mark_waiting(self, at_work: Sequence[_Thread]) -> None:
        """If all statements wait for locks, wait for PostgreSQL's deadlock check.

        Then record which sessions block each statement.
        """
        found = await self._blockers(at_work)
        if not all(found.values()):
            return
        await asyncio.sleep(_DEADLOCK_LOOKED_SECONDS)
        again = await self._blockers(at_work)
        for each in at_work:
            if each.at_work and again[each] == found[each]:
                each.waits_for = found[each]

    async def _still_wait(self, at_work: Sequence[_Thread]) -> bool:
        """Return whether the recorded sessions still block every thread at work.

        If a thread is now blocked by other sessions or by none, clear its record `waits_for`.
        """
        if not all(each.waits_for for each in at_work):
            return False
        found = await self._blockers(at_work)
        for each in at_work:
            if found[each] != each.waits_for:
                each.waits_for = frozenset()
        return all(each.at_work and each.waits_for for each in at_work)

    async def _blockers(self, at_work: Sequence[_Thread]) -> dict[_Thread, frozenset[int]]:
        rows = await self._control.fetch(
            "SELECT pid, pg_blocking_pids(pid) AS blockers FROM unnest($1::int[]) AS pid",
            [each.pid for each in at_work if each.pid is not None],
        )
        of_pid: dict[int | None, frozenset[int]] = {
            row["pid"]: self._pids.intersection(row["blockers"]) for row in rows
        }
        return {each: of_pid.get(each.pid, frozenset()) for each in at_work}

    async def _changes_within(self, seconds: float) -> bool:
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _change(self) -> None:
        if not await self._changes_within(_STUCK_SECONDS):
            stand = [f"{each.name} at {each.label!r}" for each in self._threads() if each.at_work]
            raise StuckError(f"nothing moves: {stand}, after {len(self.trace)} steps")

    def _threads(self) -> list[_Thread]:
        return [thread for actor in self._actors for thread in actor.threads.values()]


_ACTOR: ContextVar[_Actor | None] = ContextVar("actor", default=None)


def _is_elsewhere(actor: _Actor) -> bool:
    """Return whether an actor waits for something that is not a step, for example until a connection is open."""
    if not actor.begin.is_set() or actor.task is None or actor.task.done():
        return False
    return not any(each.gate is not None or each.at_work for each in actor.threads.values())


async def _drain_ready() -> None:
    """Run the loop until only network I/O or timers can make progress."""
    ready = attrgetter("_ready")
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while ready(loop):  # noqa: ASYNC110 - waits for the loop itself
        await asyncio.sleep(0)
