"""One simulated world, from opening its first account until all work is final."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from fastapi import FastAPI

from fatura.api.app import create_app
from fatura.domain.credentials import Mode
from fatura.usecases.accounts import accounts
from tests.faults.journal import Journal
from tests.faults.simulator import background_faults, invoices
from tests.faults.simulator.actions import Merchant
from tests.faults.simulator.check import Checker
from tests.faults.simulator.database import CONNECTION, ConnectionStore
from tests.faults.simulator.determinism import deterministic
from tests.faults.simulator.faults import Faults
from tests.faults.simulator.gateway import Side
from tests.faults.simulator.gateway_state import GatewayState
from tests.faults.simulator.machines import HOST, Host, WorldLoop
from tests.faults.simulator.merchants import SimMerchants
from tests.faults.simulator.process import Process
from tests.faults.simulator.schedule import Schedule, WorldEndedError
from tests.faults.simulator.side import World
from tests.faults.simulator.steps import Step

START = datetime(2033, 11, 20, 15, tzinfo=UTC)
DAY = timedelta(days=1)
REST_DAYS = 9
MENDING_DAYS = 4
TAIL_LINES = 25
ELSEWHERE: dict[str, Any] = {"user": "postgres", "database": "postgres"}
"""The connection that watches lock waits uses another database.

Its snapshots would otherwise affect when PostgreSQL prunes pages, and therefore the order of rows without ORDER BY.
"""
_APPS: list[FastAPI] = []


@dataclass(slots=True)
class Outcome:
    seed: int
    digest: str
    invoice_count: int
    days: int
    steps: int
    seconds: float
    faults: Counter[str]
    problems: list[str]
    tail: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a world, determined by its seed."""

    accounts: int
    subscribers: int
    processes: int
    days: int
    outage_on: int
    outage_days: int


def plan_of(rng: random.Random, *, small: bool) -> Plan:
    """Return the parameters of a world. Small worlds have fewer subscribers, for the short run."""
    outage_on = rng.randrange(3, 5)
    return Plan(
        accounts=rng.choice((1, 1, 1, 2)),
        subscribers=rng.randrange(5, 9) if small else rng.randrange(18, 24),
        processes=rng.choice((1, 2, 2, 3)),
        days=outage_on + 5,
        outage_on=outage_on,
        outage_days=rng.choice((65, 125, 155, 155, 185)),
    )


async def run_in_database(url: str, seed: int, *, small: bool = False) -> Outcome:
    """Run one world on a new, migrated database."""
    began = time.monotonic()
    rng = random.Random(seed)  # noqa: S311 - not for security
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WorldLoop)
    schedule = Schedule(random.Random(f"order {seed}"), START, loop)  # noqa: S311 - as above
    journal = Journal(Path(":memory:"))
    faults = Faults(random.Random(f"faults {seed}"))  # noqa: S311 - as above
    gateway = GatewayState(journal, random.Random(f"payers {seed}"))  # noqa: S311 - as above
    connections = ConnectionStore(url)
    world = World(
        seed=seed,
        rng=rng,
        schedule=schedule,
        faults=faults,
        connections=connections,
        observer=await asyncpg.connect(url, user="postgres", **CONNECTION),
        side=Side(schedule, faults, gateway),
        merchants=SimMerchants(schedule, faults, journal, random.Random(f"merchants {seed}")),  # noqa: S311 - as above
    )
    schedule.watch = await asyncpg.connect(url, **ELSEWHERE)
    schedule.inject = _injector(world)
    schedule.others_hold_locks = lambda step: (
        connections.lent > (step.pid is not None and step.pid() is not None)
    )
    schedule.on_lock_timeout = lambda: faults.count("statement: lock time-out")
    story = Story(world, plan_of(rng, small=small))
    context = copy_context()
    context.run(HOST.set, Host("world"))
    with deterministic(world):
        main = loop.create_task(story.run(), context=context)
        try:
            await schedule.drive(main)
        except Exception as error:  # noqa: BLE001 - any exception is a problem, with its trace
            world.report_error("the world stopped", error)
        invoice_count = await world.observer.fetchval("SELECT count(*) FROM invoice")
        await _end(world, [main, *story.tasks])
    journal.close()
    return Outcome(
        seed=seed,
        digest=schedule.trace.digest,
        invoice_count=invoice_count,
        days=story.day,
        steps=schedule.trace.length,
        seconds=time.monotonic() - began,
        faults=faults.met,
        problems=world.problems,
        tail=schedule.trace.tail(TAIL_LINES),
    )


def _injector(world: World) -> Callable[[Step], Awaitable[bool]]:
    async def inject(step: Step) -> bool:
        for process in world.processes:
            if process.host is step.host:
                return await process.inject(step)
        return False

    return inject


async def _end(world: World, tasks: list[asyncio.Task[object]]) -> None:
    """End all tasks, including those of dead machines, and close all connections."""
    world.schedule.end()
    for process in world.processes:
        process.end_tasks()
    left = [*tasks, *world.abandoned]
    for each in left:
        each.cancel()
    with contextlib.suppress(WorldEndedError):
        await asyncio.gather(*left, return_exceptions=True)
    assert world.schedule.watch is not None
    for each in (world.observer, world.schedule.watch):
        await each.close()
    world.connections.close()


class Story:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self.tasks: list[asyncio.Task[object]] = []
        self.day = 0
        self._merchants: list[Merchant] = []

    async def run(self) -> None:
        world, plan = self._world, self._plan
        while len(_APPS) < plan.processes:
            _APPS.append(create_app())
        world.processes = [Process(world, slot, _APPS[slot]) for slot in range(plan.processes)]
        world.restart_later = self._restart_later
        for process in world.processes:
            process.start()
        world.faults.on = False
        checker = Checker(world, [await self._open(number) for number in range(plan.accounts)])
        world.faults.on = True
        for merchant in self._merchants:
            share = plan.subscribers // plan.accounts
            self._begin(f"m{merchant.account_id[-4:]}", self._run_merchant(merchant, subscribers=share))
        self._begin("trouble", background_faults.make(world, self._merchants))
        while self.day < plan.days:
            self.day += 1
            if self.day == plan.outage_on:
                await self._outage(timedelta(days=plan.outage_days))
            await world.schedule.sleep_until(_next_midnight(world.schedule.now))
            await world.schedule.io("daily check", checker.check)
        await self._settle(checker)

    async def _open(self, number: int) -> str:
        world = self._world
        opened = await accounts.open_account(
            world.processes[0].deps, name=f"Account {number}", mode=Mode.LIVE
        )
        account_id = str(opened.account_id)
        world.merchants.secrets[account_id].append(opened.secret)
        rng = random.Random(f"merchant {number} {world.seed}")  # noqa: S311 - not for security
        self._merchants.append(Merchant(world, account_id, opened.api_key, rng))
        return account_id

    def _begin(self, name: str, action: Awaitable[None]) -> None:
        context = copy_context()
        context.run(HOST.set, Host(name))

        async def reporting() -> None:
            try:
                await action
            except Exception as error:  # noqa: BLE001 - any exception is a problem
                self._world.report_error(name, error)

        self.tasks.append(asyncio.get_running_loop().create_task(reporting(), name=name, context=context))

    async def _run_merchant(self, merchant: Merchant, *, subscribers: int) -> None:
        """Set an account up, then act at random until faults are switched off."""
        world = self._world
        await merchant.set_up(subscribers=subscribers)
        choices = [*merchant.actions(), *invoices.actions(merchant)]
        weights = [weight for weight, _ in choices]
        while world.faults.on:
            await world.schedule.sleep(merchant.rng.expovariate(1 / 60_000))
            if world.faults.on:
                await merchant.rng.choices(choices, weights)[0][1]()

    def _restart_later(self, process: Process) -> None:
        async def restart() -> None:
            await self._world.schedule.sleep(process.rng.choice((1, 3, 10, 70, 200)))
            if not process.host.alive:
                process.start()

        self._begin(f"start of {process.host.name}", restart())

    async def _outage(self, length: timedelta) -> None:
        """Kill every process, and restart them all after `length`."""
        world = self._world
        world.restart_later = lambda _process: None

        async def kill() -> None:
            for process in world.processes:
                if process.host.alive:
                    await process.die()

        await world.schedule.io("all processes die", kill)
        world.faults.count("process: all killed, for days")
        world.restart_later = self._restart_later
        await world.schedule.sleep(length.total_seconds())
        for process in world.processes:
            if not process.host.alive:
                process.start()

    async def _settle(self, checker: Checker) -> None:
        """Stop all faults, do what the specification requires of a person, and wait until all work is final."""
        world = self._world
        world.faults.on = False
        world.connections.goes_away_for, world.connections.away_until = 0, None
        world.side.gateway.let_all_pay(world.schedule.now)
        for number in range(REST_DAYS):
            self.day += 1
            await world.schedule.sleep(3600)
            for merchant in self._merchants if number < MENDING_DAYS else ():
                await invoices.resolve_all(merchant)
            await world.schedule.sleep_until(_next_midnight(world.schedule.now))
        await world.schedule.sleep(14 * 3600)
        await world.schedule.io("last check", lambda: checker.check(at_rest=True))
        await self._check_acknowledged()

    async def _check_acknowledged(self) -> None:
        """Check that every acknowledged subscription exists."""
        for merchant in self._merchants:
            path = "/v1/subscriptions?pageSize=100"
            known = {each["externalRef"]: each["id"] for each in (await merchant.get(path))["data"]}
            if len(known) < 100 and not merchant.acknowledged.items() <= known.items():
                self._world.report_problem(
                    f"acknowledged subscriptions differ in {UUID(merchant.account_id)}"
                )


def _next_midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
