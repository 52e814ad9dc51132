"""Bill through gateways that lose responses, create charges late, or show new charges late. Payers pay in parts, twice
or late.

Workers and gateways are separate processes. The run kills and freezes workers, while merchants reissue, cancel and
refund invoices. In the end, the journals of gateways and merchants must agree with the database (D-33, D-35, D-50,
D-53).
"""

import asyncio
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvloop

from tests.faults import ledgers, place, worker
from tests.faults.clock import started
from tests.faults.gateway.people import People, gather
from tests.faults.gateway.provider import LONGEST_JUMP
from tests.faults.gateway.settle import drained, settle, swept
from tests.faults.gateway.truth import compare
from tests.faults.gateway.world import Kind, World, kinds, open_world
from tests.faults.report import Options, Report, Scale
from tests.faults.workers import Workers, workers

SPEED = 10
"""Seconds of the run's clock per real second. A time-out of 20 s takes 2 real seconds, and a lease of 60 s takes 6."""
STEP_SECONDS, DAY_SECONDS = 8 * 3600, 86400
REST_DAYS, MENDING_DAYS = 9, 4
"""A run ends with REST_DAYS days without faults.

On the first MENDING_DAYS of them, people resolve the invoices for which the engine waits for a person.
"""
MOVED_PERMILLE = 20
"""How many of a thousand charges the gateway refunds or disputes by itself in each step of `Story.collect`."""
SECOND_CHARGES_PERMILLE = 5
"""Maximum number of second charges per thousand charges.

A worker that is frozen between its lease check and its request can create a second charge, which is canceled later.
"""
FEW_SECOND_CHARGES = 15
"""Replaces the maximum that SECOND_CHARGES_PERMILLE gives, if that maximum is smaller, as in a short run.

A single frozen worker has several requests in progress, and a busy machine may suspend workers too. If the engine made
no look-ups, the short run would create about 120 second charges.
"""
ACTION_SECONDS = 0.1


def run(options: Options) -> Report:
    report = Report("gateway", options.seed)
    with tempfile.TemporaryDirectory(prefix="fatura-gateway-") as folder, place.server() as server:
        uvloop.run(_run(options, report, server, Path(folder)))
    return report


async def _run(options: Options, report: Report, server: str, folder: Path) -> None:
    clock = started(speed=SPEED, jumps=folder / "clock")
    gateway_kinds = kinds(
        charges=options.pick(short=300, full=10_100),
        few=options.pick(short=20, full=250),
        accounts=options.pick(short=2, full=4),
        seed=options.seed,
    )
    async with (
        place.database(server) as url,
        open_world(url, folder, clock=clock, kinds=gateway_kinds) as world,
    ):
        people = gather(world, seed=options.seed)
        launch = partial(_start_worker, world)
        with workers(clock, folder, launch, count=options.pick(short=2, full=3)) as running:
            charges = sum(kind.charges for kind in gateway_kinds)
            story = Story(
                options, report, world, running, people, charges, options.pick(short=200, full=1200)
            )
            await story.charge()
            await story.collect()
            await story.rest()
        await compare(world, people, report)
        report.problems += await ledgers.check(world.deps, url, world.journal, has_payers=True)
        await _count(options, report, world, people, running=running, gateway_kinds=gateway_kinds)


def _start_worker(world: World, file: Path) -> "subprocess.Popen[bytes]":
    module, gateways = "tests.faults.gateway.worker", world.gateway_urls[0]
    return worker.start(module, world.url, ring=world.ring, now=world.clock, gateways=gateways, file=file)


@dataclass(slots=True)
class Story:
    """What happens in a run.

    Each subscription is charged once, so `charges` is also the number of subscriptions. `actions` is the number of the
    merchants' actions: half of them happen during the charging, and half later.
    """

    options: Options
    report: Report
    world: World
    running: Workers
    people: People
    charges: int
    actions: int
    rng: random.Random = field(init=False)
    give_up_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.options.seed)  # noqa: S311 - not for security
        self.give_up_at = time.monotonic() + self.options.pick(short=300, full=2400)

    async def charge(self) -> None:
        """Charge all invoices, while workers with charge calls in progress are killed and frozen."""
        frozen = (65.0, self.options.pick(short=75, full=150))
        others = [
            asyncio.create_task(each)
            for each in (
                self.running.kill_and_freeze(
                    self.rng, until_calls_hit=self.charges * 2 // 100 + 1, frozen_seconds=frozen
                ),
                self.people.act(count=self.actions // 2, pause_seconds=ACTION_SECONDS),
                self._show_progress(),
            )
        ]
        await settle(self.world, self.running, include_polls=False, give_up_at=self.give_up_at)
        for task in others:
            task.cancel()
        ended = await asyncio.gather(*others, return_exceptions=True)
        self.report.problems += [repr(each) for each in ended if isinstance(each, Exception)]

    async def _show_progress(self) -> None:
        while True:
            issued = self.world.journal.count("charge", "state <> 'canceled'")
            self.options.progress(min(issued, self.charges), self.charges, "charges")
            await asyncio.sleep(1)

    async def collect(self) -> None:
        """Let the due date and some more days pass. Payers pay, and the gateways refund and dispute some payments."""
        steps = self.options.pick(short=12, full=15)
        await self.world.control("refuse")
        for number in range(steps):
            self.options.progress(number, steps, "days of payments")
            self.world.clock.jump(STEP_SECONDS)
            await self.people.move_money(permille=MOVED_PERMILLE)
            await self.people.act(count=self.actions // 2 // steps, pause_seconds=ACTION_SECONDS / 10)
            if number % 4 == 0:
                self.running.kill_one(self.rng)
            await drained(self.world, seconds=15)

    async def rest(self) -> None:
        """Stop all faults, resolve the invoices that wait for a person, and let the engine finish all work."""
        world, people = self.world, self.people
        people.world.faults.on = False
        await world.control("calm")
        for number in range(REST_DAYS):
            self.options.progress(number, REST_DAYS, "days of rest")
            if number < MENDING_DAYS:
                await people.resolve_all()
            world.clock.jump(DAY_SECONDS)
            await drained(world, seconds=30)
        is_long = self.options.scale is Scale.FULL
        if is_long:
            world.clock.jump(LONGEST_JUMP.total_seconds())
            await drained(world, seconds=30)
        await asyncio.gather(*people.tasks)
        await people.send_missing_webhooks(only_unpolled=is_long)
        for _ in range(2):
            world.clock.jump(STEP_SECONDS)
            await drained(world, seconds=self.give_up_at - time.monotonic())
        await swept(world, give_up_at=self.give_up_at)
        unsettled = await settle(world, self.running, include_polls=False, give_up_at=self.give_up_at)
        # `settle` may have set the clock to the day of the next sweeps.
        await drained(world, seconds=self.give_up_at - time.monotonic())
        await swept(world, give_up_at=self.give_up_at)
        self.report.count("rows with unfinished work at the time limit", unsettled, at_most=0)
        self.report.problems += [
            f"a worker ended unexpectedly with exit code {code}" for code in self.running.unexpected_exits()
        ]


async def _count(
    options: Options,
    report: Report,
    world: World,
    people: People,
    *,
    running: Workers,
    gateway_kinds: Sequence[Kind],
) -> None:
    requests: dict[Kind, Counter[tuple[str, int]]] = {kind: Counter() for kind in gateway_kinds}
    for charge in people.world.side.gateway.charges.values():
        if not charge.was_forgotten:
            requests[world.account_kinds[charge.account_id]][str(charge.invoice_id), charge.attempt] += 1
    for kind, made in requests.items():
        invoices = len({invoice_id for invoice_id, _ in made})
        report.count(f"invoices charged, {kind.name}", invoices, at_least=kind.charges * 0.75)
    report.count("workers killed and frozen", running.counts.total(), at_least=1)
    charges = sum(kind.charges for kind in gateway_kinds)
    report.count(
        "charge calls that were open in killed or frozen workers (percent)",
        100 * running.calls_hit / charges,
        # A short run has no minimum, because most of its charges may exist before the first kill.
        at_least=2 if options.scale is Scale.FULL else None,
    )
    refused = world.journal.count("gateway_call", "operation = 'refuse'")
    report.count("days on which a gateway refused all calls of a connection", refused, at_least=1)
    for kind, made in requests.items():
        most = max(kind.charges * SECOND_CHARGES_PERMILLE // 1000, FEW_SECOND_CHARGES)
        at_most = None if kind.creates_too_late else 0 if kind.faults.knows_keys else most
        report.count(f"second charges created, {kind.name}", made.total() - len(made), at_most=at_most)
    report.problems += [
        f"no event names the second charge {each}" for each in await _unreported(world, people)
    ]
    for what, count in sorted(people.acted.items()):
        report.count(f"merchants: {what}", count)


async def _unreported(world: World, people: People) -> Sequence[str]:
    """Return the gateways' charges that are not stored, and that no `invoice.issue_failed` event names.

    Omit charges that a gateway has forgotten at some time, because the engine cannot always find them. Also omit
    charges without a payment that were canceled, or that the engine has stored as expired: they cost the payer no
    money. An expired charge must be stored, so that the engine sees when the gateway opens it again (D-181).
    """
    rows = await world.tables.fetch(
        """
        SELECT gateway_invoice_id FROM charge WHERE gateway_invoice_id IS NOT NULL
        UNION ALL
        SELECT data::jsonb #>> '{error,gatewayInvoiceId}' FROM event WHERE type = 'invoice.issue_failed'
        """
    )
    watched = await world.tables.fetch(
        "SELECT gateway_charge_id FROM unmatched_charge WHERE state = 'expired'"
    )
    known, harmless = {row[0] for row in rows}, {row[0] for row in watched}
    charges = people.world.side.gateway.charges.values()
    return [
        f"{each.charge_id} of invoice {each.invoice_id}, which is {each.state} with {len(each.entries)} entries"
        for each in charges
        if each.charge_id not in known
        and not each.was_forgotten
        and (each.entries or not (each.state == "canceled" or each.charge_id in harmless))
    ]
