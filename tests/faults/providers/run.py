"""Bill with the adapters at simulated providers that lose 30 % of the answers to writes.

Workers are separate processes. The run kills and freezes them at random moments. In the end, each invoice must have
exactly one charge at its provider, and the ledgers of the providers and of the engine must be equal (D-33, D-261,
D-262, D-263, D-265).
"""

import asyncio
import random
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from tests.faults import place, worker
from tests.faults.clock import started
from tests.faults.gateway.settle import FROZEN_JUMP, MORE, MORE_SHARE, drained, swept
from tests.faults.providers.doubles import Held
from tests.faults.providers.truth import compare
from tests.faults.providers.world import Shop, World, open_world
from tests.faults.report import Options, Report
from tests.faults.workers import Workers, workers
from tests.support.provider_shop import hook

SPEED = 10
"""Seconds of the run's clock per real second. A lease of 60 s takes 6 real seconds."""
HIT_PAUSES = (0.1, 1.5)
"""Shortest and longest pause between two hits of workers, in real seconds."""
REST = timedelta(hours=26)
"""How long the run waits after all faults, so that the engine finds and cancels all second charges (D-125)."""
STEP = timedelta(hours=2)
HOOKED = 2
"""A provider with webhooks sends a webhook about every second payment. Polls and sweeps find the other payments."""
LEAST_LOST_PERCENT = 20
"""Minimum share of the charge calls whose answers are lost. Each provider loses 30 %."""
SECOND_CHARGES_PERMILLE, FEW_SECOND_CHARGES = 5, 15
"""Maximum number of second charges, as in the run `gateway`. The engine must cancel all of them before payers pay."""

_NEXT_CALL = """
    SELECT least(
        (SELECT min(greatest(v.next_attempt_at, v.lease_until)) FROM invoice v WHERE v.status = 'ready'),
        (SELECT min(h.next_probe_at) FROM connection_health h)
    )
"""
"""Selects when the next call for an invoice without a charge is due, or the next probe of a failing connection."""


def run(options: Options) -> Report:
    report = Report("providers", options.seed)
    with tempfile.TemporaryDirectory(prefix="fatura-providers-") as folder, place.server() as server:
        uvloop.run(_run(options, report, server, Path(folder)))
    return report


async def _run(options: Options, report: Report, server: str, folder: Path) -> None:
    clock = started(speed=SPEED, jumps=folder / "clock")
    charges = options.pick(short=60, full=1_000)
    options.progress(0, 4 * charges, "subscriptions")
    async with (
        place.database(server) as url,
        open_world(url, clock=clock, charges=charges, seed=options.seed) as world,
    ):
        launch = partial(_start_worker, world)
        with workers(clock, folder, launch, count=options.pick(short=2, full=3)) as running:
            story = Story(options, report, world, running, charges * len(world.shops))
            await story.charge()
            await story.rest()
            await story.collect()
        await compare(world, report, charges=charges)
        _count(options, report, world.shops, running, charges=charges)


def _start_worker(world: World, file: Path) -> "subprocess.Popen[bytes]":
    gateways = msgspec.json.encode(world.places).decode()
    module = "tests.faults.providers.worker"
    return worker.start(module, world.url, ring=world.ring, now=world.clock, gateways=gateways, file=file)


@dataclass(slots=True)
class Story:
    """What happens in a run. `charges` is the number of all invoices."""

    options: Options
    report: Report
    world: World
    running: Workers
    charges: int
    rng: random.Random = field(init=False)
    give_up_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.options.seed)  # noqa: S311 - not for security
        self.give_up_at = time.monotonic() + self.options.pick(short=300, full=1800)

    async def charge(self) -> None:
        """Charge all invoices, while answers are lost and workers are killed and frozen."""
        self._lose(is_lossy=True)
        hits = self.options.pick(short=8, full=60)
        hitting = self.running.hit_at_random(self.rng, hits=hits, pauses=HIT_PAUSES, frozen_seconds=(65, 150))
        await self._beside(hitting, self._issue())
        self._lose(is_lossy=False)

    async def _issue(self) -> None:
        """Wait until each invoice has a charge. When nothing is due, set the clock forward."""
        world = self.world
        while time.monotonic() < self.give_up_at:
            issued = await self._invoices("issued")
            self.options.progress(issued, self.charges, "charges")
            if issued == self.charges and not self.running.frozen:
                return
            await drained(world, seconds=5)
            due_at = await world.tables.fetchval(_NEXT_CALL)
            ahead = timedelta() if due_at is None else due_at - world.clock()
            if ahead > timedelta() and not self.running.is_calling():
                ahead = ahead * (1 + MORE_SHARE) + MORE
                ahead = min(ahead, FROZEN_JUMP) if self.running.frozen else ahead
                world.clock.jump(ahead.total_seconds())

    async def _beside(self, other: Coroutine[Any, Any, None], main: Coroutine[Any, Any, None]) -> None:
        """Run `other` until `main` has ended. Report an error of `other`."""
        task = asyncio.create_task(other)
        await main
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        self.report.problems += [repr(ended)] if isinstance(ended, Exception) else []

    async def rest(self) -> None:
        """Without faults, wait until the engine has found and canceled all second charges."""
        for number in range(REST // STEP):
            self.options.progress(number * 2, REST // STEP * 2, "hours of rest")
            await self._step()

    async def collect(self) -> None:
        """Pay each charge that can be paid, and wait until the engine knows all payments."""
        for shop in self.world.shops:
            held = list(shop.simulated.held())
            for each in held:
                shop.simulated.pay(each)
            await self._send_webhooks(shop, held[::HOOKED])
        while time.monotonic() < self.give_up_at:
            paid = await self._invoices("paid")
            self.options.progress(paid, self.charges, "payments")
            if paid == self.charges:
                break
            self.running.kill_one(self.rng)
            await self._step()
        await swept(self.world, give_up_at=self.give_up_at)
        self.report.problems += [
            f"a worker ended unexpectedly with exit code {code}" for code in self.running.unexpected_exits()
        ]

    async def _send_webhooks(self, shop: Shop, charges: Sequence[Held]) -> None:
        for charge in charges:
            webhook = shop.simulated.webhook(charge)
            if webhook is None:
                return
            status = await hook(shop.merchant, shop.connection_id, webhook)
            if status != 200:
                self.report.problems.append(f"{shop.simulated.name}: a webhook got the status {status}")
                return

    async def _step(self) -> None:
        self.world.clock.jump(STEP.total_seconds())
        await drained(self.world, seconds=15)

    async def _invoices(self, status: str) -> int:
        counted = "SELECT count(*) FROM invoice WHERE status = $1"
        return await self.world.tables.fetchval(counted, status)

    def _lose(self, *, is_lossy: bool) -> None:
        for shop in self.world.shops:
            shop.simulated.is_lossy = is_lossy


def _count(
    options: Options, report: Report, shops: Sequence[Shop], running: Workers, *, charges: int
) -> None:
    most = max(charges * SECOND_CHARGES_PERMILLE // 1000, FEW_SECOND_CHARGES)
    for simulated in (each.simulated for each in shops):
        second = simulated.made() - charges
        report.count(
            f"second charges created, {simulated.name}",
            second,
            at_most=most if simulated.second_charges else 0,
        )
    asked = sum(each.simulated.losses.asked for each in shops)
    lost = sum(each.simulated.losses.answers for each in shops)
    report.count("charge calls at the providers", asked, at_least=charges * len(shops))
    report.count(
        "charge calls whose answers were lost (percent)",
        100 * lost / max(asked, 1),
        at_least=LEAST_LOST_PERCENT,
    )
    report.count("workers killed", running.counts["kill"])
    report.count(
        "workers killed during a charge call",
        running.in_calls["kill"],
        at_least=options.pick(short=2, full=10),
    )
    report.count("workers frozen for longer than their leases", running.counts["freeze"], at_least=1)
    report.count("charge calls that were open in killed or frozen workers", running.calls_hit, at_least=1)
