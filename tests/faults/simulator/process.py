"""A simulated engine process, which runs the real application and lanes. It can be killed or frozen."""

import asyncio
import base64
import contextlib
import random
from collections.abc import Coroutine, Mapping
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from fastapi import FastAPI

from fatura import settings
from fatura.api.app import set_deps
from fatura.bootstrap import wire
from fatura.domain.credentials import Mode
from fatura.domain.tags import KEY_BYTES, Tagger
from fatura.gateways.port import GatewayError
from fatura.gateways.provider import Provider
from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError
from fatura.store.vault import Vault
from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES, Lane
from fatura.workers.loop import run_batch
from tests.faults.simulator import work
from tests.faults.simulator.asgi import Answer, request
from tests.faults.simulator.database import SimDatabase, SimPool
from tests.faults.simulator.faults import LIST_STEP, REFUND_STEP, STEP
from tests.faults.simulator.gateway import PROVIDER, SimGateway
from tests.faults.simulator.machines import HOST, Host
from tests.faults.simulator.side import World
from tests.faults.simulator.steps import Step
from tests.support.unlimited import UNLIMITED

POOL_SIZE = 3
NAPS_SECONDS = (61, 3600, 14_400, 14_400, 28_800)
"""Minimum pauses between two polls of a worker, in a world with one process. More processes make the pauses longer.

The pauses are long, so that much work is due at each poll.
"""
LONGEST_NAP = timedelta(hours=16)
HINT_HEARD = 0.1
GOES_ON = 0.3
"""Chance that a worker polls again soon after a poll that found work, while faults are on."""
IDLE_TIMEOUT_SECONDS = 30
"""PostgreSQL ends a session that is idle in a transaction for this time."""
_RISKS = {"gateway.list": LIST_STEP, "gateway.refund": REFUND_STEP}
"""The steps at which a process is killed or frozen more often than at other steps."""
_IN_DOUBT = frozenset({"COMMIT", "gateway.refund"})
"""Steps that may take effect although the process is killed during the step."""
_LANE = {lane.name: lane for lane in LANES}
_RING = base64.b64encode(b"simulator simulator simulator 12").decode()
_SETTINGS = settings.read(UNLIMITED)


class ConnectionCutError(Exception):
    """The process was killed or its response was lost, so the caller does not know whether the request succeeded."""


class Process:
    def __init__(self, world: World, slot: int, app: FastAPI) -> None:
        self.world = world
        self.slot = slot
        self.starts = 0
        self.host = Host(f"p{slot}", alive=False)
        self._app = app
        self._pool: SimPool | None = None
        self._cut: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[object]] = []
        self.rng = random.Random(world.rng.random())  # noqa: S311 - not for security

    def start(self) -> None:
        world = self.world
        self.starts += 1
        self.host = Host(f"p{self.slot}.{self.starts}")
        self._pool = SimPool(world.schedule, world.connections, world.faults, size=POOL_SIZE)
        self._cut = asyncio.get_running_loop().create_future()
        set_deps(self._app, self._deps(self._pool))
        self._run(self._work_and_report(), "worker")

    async def _work_and_report(self) -> None:
        try:
            await self._work()
        except Exception as error:  # noqa: BLE001 - a worker that ends is a problem
            self.world.report_error("the worker ended", error)

    def _deps(self, pool: SimPool) -> Deps:
        world = self.world
        deps = wire(
            _SETTINGS,
            SimDatabase(pool),
            vault=Vault([_RING]),
            tagger=Tagger(bytes(KEY_BYTES)),
            clock=lambda: world.schedule.now,
            notify=lambda _lane: self._hint(),
        )
        provider = Provider(lambda config: SimGateway(world.side, config), frozenset({Mode.LIVE}))
        self.deps = replace(deps, providers={PROVIDER: provider}, merchants=world.merchants)  # pyright: ignore[reportArgumentType] - SimMerchants has the same methods
        return self.deps

    def _run(self, action: Coroutine[Any, Any, object], name: str) -> "asyncio.Task[object]":
        context = copy_context()
        context.run(HOST.set, self.host)
        task = asyncio.get_running_loop().create_task(
            action, name=f"{self.host.name} {name}", context=context
        )
        self._tasks.append(task)
        return task

    def _hint(self) -> None:
        """Choose a process at random, and notify its worker, as NOTIFY does.

        Most notifications are lost while faults are on.
        """
        schedule = self.world.schedule
        if schedule.rng.random() < HINT_HEARD or not self.world.faults.on:
            other = schedule.rng.choice(self.world.processes)
            schedule.wake_early(other.host, schedule.now + timedelta(milliseconds=50))

    async def _work(self) -> None:
        schedule = self.world.schedule
        while True:
            due = await work.look(self.world)
            names = [name for name, at in due.items() if at <= schedule.now]
            done = 0
            if names:
                self.rng.shuffle(names)
                runs = [asyncio.ensure_future(self._run_lane(_LANE[name])) for name in names]
                done = sum(await asyncio.gather(*runs))
            await schedule.sleep_until(self._wakes_at(due, done=done))

    def _wakes_at(self, due: Mapping[str, datetime], *, done: int) -> datetime:
        """Return the time of the worker's next poll.

        If the last poll found work and faults are off, the worker polls again after half a second. While faults are on,
        it does so only with the probability GOES_ON. In all other cases, the worker sleeps until work is due, within a
        minimum and a maximum.
        """
        now = self.world.schedule.now
        soon = now + timedelta(seconds=0.5)
        if done and (self.rng.random() < GOES_ON or not self.world.faults.on):
            return soon
        between = self.rng.choice(NAPS_SECONDS) * (0.8 + 0.4 * self.rng.random())
        nap = timedelta(seconds=between * len(self.world.processes))
        at_the_earliest = now + (nap if self.world.faults.on else self.world.calm_nap)
        at_the_latest = now + max(LONGEST_NAP, self.world.calm_nap)
        next_due = min((at for at in due.values() if at > now), default=at_the_latest)
        return min(max(next_due, at_the_earliest), at_the_latest)

    async def _run_lane(self, lane: Lane) -> int:
        try:
            accounts = await lane.due(self.deps)
        except (DatabaseUnavailableError, DeadlockError, LockTimeoutError):
            return 0  # the real worker loop logs these errors and retries
        return sum([await run_batch(self.deps, lane, each) for each in accounts])

    async def inject(self, step: Step) -> bool:
        """Kill or freeze the process at random before a step. Return whether a fault occurred.

        If the process is killed at a COMMIT or during a refund call, the commit or the refund may have taken effect.
        """
        world = self.world
        fault = world.faults.draw(_RISKS.get(step.label, STEP))
        if fault is None:
            return False
        world.schedule.trace.add(f"{self.host.name} {fault} at {step.label}")
        if fault == "process: killed":
            if step.label in _IN_DOUBT and world.schedule.rng.random() < 0.5:
                # an injected fault may make the step itself fail
                with contextlib.suppress(asyncpg.ConnectionDoesNotExistError, GatewayError):
                    await step.work()
            await self.die()
            return True
        seconds = world.schedule.rng.choice((12, 25, 40, 70, 100, 400))
        self.host.frozen_until = world.schedule.now + timedelta(seconds=seconds)
        if seconds >= IDLE_TIMEOUT_SECONDS and self._pool is not None:
            await self._pool.end_idle_sessions()
        return True

    async def die(self) -> None:
        """Kill the process: its tasks stop, its sessions end, and its clients' connections are closed.

        `World.restart_later` decides when the process starts again.
        """
        world = self.world
        self.host.alive = False
        for step in world.schedule.forget(self.host):
            await world.schedule.cancel(step)
        assert self._pool is not None
        assert self._cut is not None
        await self._pool.end_sessions()
        world.abandoned += self._tasks
        self._tasks = []
        self._cut.set_result(None)
        world.restart_later(self)

    def end_tasks(self) -> None:
        self.world.abandoned += self._tasks

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send a request to this process. Raises ConnectionCutError if the process dies before it responds."""
        if not self.host.alive:
            raise ConnectionCutError
        assert self._cut is not None
        serving = self._run(request(self._app, method, path, headers=headers, body=body), "request")
        await asyncio.wait({serving, self._cut}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            raise ConnectionCutError
        self._tasks.remove(serving)
        answer = serving.result()
        assert isinstance(answer, Answer)
        return answer
