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
from fatura.usecases.operations import call_counts
from tests.faults.journal import Journal
from tests.faults.simulator import background_faults, collecting, invoices, refunds
from tests.faults.simulator.actions import Merchant
from tests.faults.simulator.check import Checker
from tests.faults.simulator.database import CONNECTION, ConnectionStore
from tests.faults.simulator.determinism import deterministic
from tests.faults.simulator.faults import Faults
from tests.faults.simulator.gateway import Side
from tests.faults.simulator.gateway_state import GatewayState
from tests.faults.simulator.machines import HOST, Host, WorldLoop
from tests.faults.simulator.merchants import SimMerchants
from tests.faults.simulator.payers import Payers
from tests.faults.simulator.process import Process
from tests.faults.simulator.schedule import Schedule, WorldEndedError
from tests.faults.simulator.side import REST_NAP, World
from tests.faults.simulator.steps import Step
from tests.support.operator import OPERATOR

START = datetime(2033, 11, 20, 15, tzinfo=UTC)
DAY = timedelta(days=1)
REST_DAYS = 9
MENDING_DAYS = 4
LONG_REST = timedelta(days=63)
"""A little longer than the longest pause between two polls of a paid charge, which is 60 days (D-55)."""
LONG_NAP, LAST_NAP = timedelta(days=2), timedelta(minutes=50)
"""Minimum pauses between two polls of a worker: LONG_NAP during LONG_REST, and LAST_NAP before the final check."""
TAIL_LINES = 25
COUNTED_FINDINGS = frozenset({"unmatched", "entry_missing"})
"""What the nightly sweep finds in most worlds: second charges, and entries that nothing else reported (D-161)."""
ELSEWHERE: dict[str, Any] = {"user": "postgres", "database": "postgres"}
"""The connection that watches lock waits uses another database than the world.

In the world's database, the snapshots of this connection would affect when PostgreSQL prunes pages, and therefore the
order of rows without ORDER BY.
"""
_APPS: list[FastAPI] = []


@dataclass(slots=True)
class Outcome:
    """What happened in a world.

    `money` counts the entries of the engine's ledger, the requested refunds, the reissues, and what sweeps found.
    """

    seed: int
    digest: str
    invoice_count: int
    days: int
    steps: int
    seconds: float
    faults: Counter[str]
    money: Counter[str]
    problems: list[str]
    tail: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a world, determined by its seed.

    If `rests_long` is true, the world ends with a pause that is long enough for the engine to poll every paid charge
    again. Before this pause, the gateway sends late webhooks, but only for charges that the engine no longer polls.
    """

    accounts: int
    subscribers: int
    processes: int
    days: int
    outage_on: int
    outage_days: int
    rests_long: bool


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
        rests_long=rng.random() < 0.3,
    )


async def run_in_database(url: str, seed: int, *, small: bool = False) -> Outcome:
    """Run one world on a new, migrated database."""
    began, found_before = time.monotonic(), _sweep_findings()
    rng = random.Random(seed)  # noqa: S311 - not for security
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WorldLoop)
    schedule = Schedule(random.Random(f"order {seed}"), START, loop)  # noqa: S311 - as above
    journal = Journal(Path(":memory:"))
    faults = Faults(random.Random(f"faults {seed}"))  # noqa: S311 - as above
    gateway = GatewayState(Payers(random.Random(f"payers {seed}")), faults)  # noqa: S311 - as above
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
        money = await _count_money(world)
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
        money=money + (_sweep_findings() - found_before),
        problems=world.problems,
        tail=schedule.trace.tail(TAIL_LINES),
    )


async def _count_money(world: World) -> Counter[str]:
    """Count what the engine recorded, so that the report shows how many entries the run compared.

    Omit open refunds, because the last check reports them as problems.
    """
    rows = await world.observer.fetch(
        """
        SELECT CASE WHEN source = 'manual' THEN 'payments recorded by hand' WHEN kind = 'payment' THEN 'payments'
            WHEN kind = 'refund' THEN 'refunds' ELSE 'steps of disputes' END AS what, count(*) AS many
        FROM payment_entry GROUP BY 1
        UNION ALL SELECT 'refunds by request, ' || stage, count(*) FROM refund_request
            WHERE stage IN ('done', 'failed') GROUP BY 1
        UNION ALL SELECT 'reissues', count(*) FROM event WHERE type = 'invoice.reissued'
        """
    )
    return Counter({row["what"]: row["many"] for row in rows})


def _sweep_findings() -> Counter[str]:
    """Return what the nightly sweeps of all worlds in this process have found so far."""
    samples = [sample for metric in call_counts.sweep_findings.collect() for sample in metric.samples]
    return Counter(
        {
            f"sweep: {sample.labels['kind']}": int(sample.value)
            for sample in samples
            if sample.name.endswith("_total") and sample.labels["kind"] in COUNTED_FINDINGS
        }
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
            world.processes[0].deps, name=f"Account {number}", mode=Mode.LIVE, opened_by=OPERATOR
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
        """Set an account up, then perform random actions until faults are switched off."""
        world = self._world
        await merchant.set_up(subscribers=subscribers)
        choices = [*merchant.actions(), *invoices.actions(merchant), *collecting.actions(merchant)]
        weights = [weight for weight, _ in choices]
        self._begin(f"r{merchant.account_id[-4:]}", refunds.make(merchant))
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
        """Kill every process. After the time `length`, restart them all."""
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
        """Stop all faults, and let merchants act where the engine waits for a person.

        When all work should be final, check everything.
        """
        world = self._world
        world.faults.on = False
        world.connections.goes_away_for, world.connections.away_until = 0, None
        world.side.gateway.let_all_pay(world.schedule.now)
        for number in range(REST_DAYS):
            self.day += 1
            await world.schedule.sleep(3600)
            for merchant in self._merchants if number < MENDING_DAYS else ():
                await invoices.resolve_all(merchant)
                await collecting.collect_all(merchant)
            await world.schedule.sleep_until(_next_midnight(world.schedule.now))
        await background_faults.send_missing_webhooks(world, only_unpolled=self._plan.rests_long)
        if self._plan.rests_long:
            await self._rest_long()
        await world.schedule.sleep(8 * 3600)
        world.calm_nap = LAST_NAP
        await world.schedule.sleep(6 * 3600)
        await world.schedule.io("last check", lambda: checker.check(at_rest=True))
        for merchant in self._merchants:
            await checker.check_shown_sums(merchant)
        await self._check_acknowledged()

    async def _rest_long(self) -> None:
        """Cancel all subscriptions, then advance the time until the engine has polled every paid charge again."""
        world = self._world
        for merchant in self._merchants:
            await merchant.cancel_all_subscriptions()
        world.calm_nap = LONG_NAP
        await world.schedule.sleep(LONG_REST.total_seconds())
        world.calm_nap = REST_NAP
        await world.schedule.sleep(LONG_NAP.total_seconds())

    async def _check_acknowledged(self) -> None:
        """Check that every acknowledged subscription exists."""
        for merchant in self._merchants:
            known: dict[str | None, str] = {}
            page, pages = 1, 1
            while page <= pages:
                listed = await merchant.get(f"/v1/subscriptions?pageSize=100&page={page}")
                known |= {each["externalRef"]: each["id"] for each in listed["data"]}
                page, pages = page + 1, listed["pagination"]["totalPages"]
            if not merchant.acknowledged.items() <= known.items():
                self._world.report_problem(
                    f"acknowledged subscriptions differ in {UUID(merchant.account_id)}"
                )


def _next_midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
