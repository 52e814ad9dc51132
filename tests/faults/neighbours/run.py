"""Measure how much hanging endpoints and a large billing run of some merchants delay other merchants."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

from fatura.outbound.http import DEADLINE_SECONDS
from fatura.usecases.operations import checks
from tests.faults import place
from tests.faults.neighbours.setup import Setup, endpoints, open_setup, workers
from tests.faults.report import Options, Report, Scale
from tests.support.world import Json, Merchant, subscription_body

WELL = 4
"""Number of healthy merchants, whose waits are measured."""
ENROL_EVERY_SECONDS = 0.1
REARM_EVERY_SECONDS = 0.5
"""Interval at which the back-off of the hanging endpoints is reset."""
SETTLE_SECONDS = 0.3
"""Events this close to a round's end are not measured."""
ARRIVE_WITHIN_SECONDS = 180
"""Maximum wait until healthy merchants have all their events, while no endpoint hangs."""
HELD_SECONDS = DEADLINE_SECONDS - 1
"""Maximum wait after a noisy round until healthy merchants have all their events. The endpoints hang meanwhile.

This wait is shorter than the engine's deadline for a hanging call. An event that had to wait for such a call is
therefore still missing when the wait ends.
"""
MOST_TIMES_LONGER = {Scale.SHORT: 8.0, Scale.FULL: 2.0}
"""Maximum ratio of the p99 in noisy rounds to the p99 in quiet rounds.

If merchants waited for a hanging call (10 s), the ratio could reach 100.
"""
LEAST_WAIT_SECONDS = 0.1
"""Replaces a smaller p99 of the quiet rounds in ratios, because such a p99 depends mostly on the machine."""
MOST_TIMES_LONGER_BESIDE_A_CROWD = {Scale.SHORT: None, Scale.FULL: 50.0}
"""Maximum ratio of the p99 during a large billing run to the p99 in quiet rounds.

The billing run keeps processors and disk busy. Other merchants may wait for some of its batches, but never for the
whole billing run, which takes minutes.
"""

ARRIVALS = """
    SELECT e.event_id, e.created_at FROM event e WHERE e.account_id = $1 ORDER BY e.sequence
"""
BILLED = """
    SELECT s.started_at, v.created_at FROM invoice v JOIN subscription s USING (account_id, subscription_id)
    WHERE v.account_id = $1
"""
QUESTIONS = """
    SELECT i.item_id, v.created_at FROM invoice_item i JOIN invoice v USING (account_id, invoice_id)
    WHERE i.account_id = $1 AND i.pricing_source = 'endpoint'
"""


@dataclass(frozen=True, slots=True)
class Round:
    """A measured period.

    `doing` says what other merchants do during the period. In a `quiet` round, they do nothing. In a `noisy` round,
    their endpoints hang or fail. In the `bulk` round, one of them has a large billing run.
    """

    doing: str
    began: datetime
    ended: datetime

    def holds(self, instant: datetime) -> bool:
        """Return whether an instant is in the round, but not within SETTLE_SECONDS of its end."""
        return self.began <= instant <= self.ended - timedelta(seconds=SETTLE_SECONDS)


@dataclass(slots=True)
class Waits:
    """Waiting times in seconds, one field per kind of work. The keys of each field are values of `Round.doing`."""

    deliveries: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    generation: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    prices: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


def run(options: Options) -> Report:
    """Measure alternating quiet and noisy rounds, and then a round during another merchant's billing run."""
    report = Report("neighbours", options.seed)
    with place.server() as server_url, tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(server_url, Path(folder), options, report))
    return report


async def _run(server_url: str, folder: Path, options: Options, report: Report) -> None:
    backlog = options.pick(short=5_000, full=50_000)
    async with (
        place.database(server_url) as database_url,
        open_setup(database_url) as setup,
        endpoints(setup, healthy=WELL, backlog=backlog) as hanging,
    ):
        with workers(database_url, folder):
            await _warm_up(setup)
            rounds, held_back = await _rounds(setup, options)
            rounds.append(await _during_bulk_billing(setup, options, report))
            lost = await _lost(setup)
        waits = await _measure_waits(setup, rounds)
        report.count("events for the hanging endpoint", backlog)
        report.count("calls that the hanging endpoint held open", len(hanging.received), at_least=64)
        report.count("events of other merchants that waited for the hanging endpoint", held_back, at_most=0)
        report.count("events of other merchants that did not arrive", lost, at_most=0)
        _judge(
            report,
            waits,
            longest=MOST_TIMES_LONGER[options.scale],
            bulk=MOST_TIMES_LONGER_BESIDE_A_CROWD[options.scale],
        )
        report.problems += await _violations(setup)


async def _warm_up(setup: Setup) -> None:
    """Deliver some events, so that the workers run and every healthy endpoint reaches its maximum concurrency."""
    for merchant, plan in setup.healthy:
        for _ in range(8):
            await _enroll(merchant, plan)
    await _lost(setup)


async def _enroll(merchant: Merchant, plan: Json) -> None:
    await merchant.made("/v1/subscriptions", subscription_body(plan))


async def _rounds(setup: Setup, options: Options) -> tuple[list[Round], int]:
    """Run alternating quiet and noisy rounds. Return the rounds, and the number of events that arrived too late."""
    each = options.pick(short=2, full=4)
    enrolled = options.pick(short=15, full=60)
    rounds: list[Round] = []
    held_back = 0
    for number in range(each):
        options.progress(2 * number, 2 * each, "quiet and noisy rounds")
        rounds.append(await _round(setup, "quiet", enrolled, every=_nothing))
        await setup.begin_noise()
        rounds.append(await _round(setup, "noisy", enrolled, every=setup.renew_noise))
        held_back += await _drain(setup)
        await setup.end_noise()
        await _lost(setup)  # no event of this noisy round may arrive in the next quiet round
    return rounds, held_back


async def _drain(setup: Setup) -> int:
    """Keep the hanging endpoints busy until healthy merchants have all their events, or HELD_SECONDS have passed.

    Return the number of events that are still missing.
    """
    deadline = time.monotonic() + HELD_SECONDS
    while (left := await _in_flight(setup)) and time.monotonic() < deadline:
        await setup.renew_noise()
        await asyncio.sleep(REARM_EVERY_SECONDS)
    return left


async def _round(setup: Setup, doing: str, enrolled: int, *, every: Callable[[], Awaitable[None]]) -> Round:
    """Subscribe customers to the healthy merchants' plans in turn, and call `every` once per REARM_EVERY_SECONDS."""
    await every()
    await asyncio.sleep(SETTLE_SECONDS)
    began, again_at = datetime.now(UTC), time.monotonic() + REARM_EVERY_SECONDS
    for merchant, plan in islice(cycle(setup.healthy), enrolled):
        turn = time.monotonic() + ENROL_EVERY_SECONDS
        await _enroll(merchant, plan)
        if time.monotonic() >= again_at:
            await every()
            again_at = time.monotonic() + REARM_EVERY_SECONDS
        await asyncio.sleep(max(turn - time.monotonic(), 0))
    await asyncio.sleep(SETTLE_SECONDS)
    return Round(doing, began, datetime.now(UTC))


async def _nothing() -> None:
    """Do nothing, because quiet and bulk rounds leave the endpoints unchanged."""


async def _during_bulk_billing(setup: Setup, options: Options, report: Report) -> Round:
    """Run a round during which the engine bills another merchant's due subscriptions.

    Each transaction of the engine bills a thousand of them.
    """
    count = options.pick(short=5_000, full=50_000)
    bulk_merchant = await setup.add_bulk(count)
    report.count("due subscriptions of the bulk merchant", count)
    round_ = await _round(setup, "bulk", options.pick(short=15, full=100), every=_nothing)
    (billed,) = await setup.sql(bulk_merchant, "SELECT count(*) FROM invoice WHERE account_id = $1")
    report.count("subscriptions of the bulk merchant billed meanwhile", billed[0], at_least=1000)
    return round_


async def _lost(setup: Setup) -> int:
    """Wait at most ARRIVE_WITHIN_SECONDS until healthy merchants have all their events.

    Return the number of missing events.
    """
    deadline = time.monotonic() + ARRIVE_WITHIN_SECONDS
    while True:
        lost = await _in_flight(setup)
        if not lost or time.monotonic() > deadline:
            return lost
        await asyncio.sleep(0.1)


async def _in_flight(setup: Setup) -> int:
    return sum(str(row["event_id"]) not in setup.arrived for row in await _of_healthy(setup, ARRIVALS))


async def _of_healthy(setup: Setup, statement: str) -> list[Json]:
    return [row for merchant, _ in setup.healthy for row in await setup.sql(merchant, statement)]


async def _measure_waits(setup: Setup, rounds: Sequence[Round]) -> Waits:
    events = [
        (row["created_at"], setup.arrived.get(str(row["event_id"])))
        for row in await _of_healthy(setup, ARRIVALS)
    ]
    questions = [
        (row["created_at"], setup.asked.get(str(row["item_id"])))
        for row in await _of_healthy(setup, QUESTIONS)
    ]
    billed = [(row["started_at"], row["created_at"]) for row in await _of_healthy(setup, BILLED)]
    return Waits(_by_round(events, rounds), _by_round(billed, rounds), _by_round(questions, rounds))


def _by_round(
    spans: Iterable[tuple[datetime, datetime | None]], rounds: Sequence[Round]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for began, ended in spans:
        for each in rounds:
            if ended is not None and each.holds(began):
                found.setdefault(each.doing, []).append((ended - began).total_seconds())
    return found


def _judge(report: Report, waits: Waits, *, longest: float, bulk: float | None) -> None:
    for what, found in (
        ("delivery", waits.deliveries),
        ("generation", waits.generation),
        ("price call", waits.prices),
    ):
        quiet, noisy, crowd = (_p99(found.get(doing, [])) for doing in ("quiet", "noisy", "bulk"))
        report.count(f"{what}: measured", sum(map(len, found.values())), at_least=20)
        report.count(f"{what}: p99 in quiet rounds, s", quiet)
        report.count(f"{what}: p99 in noisy rounds, s", noisy)
        report.count(
            f"{what}: p99 in noisy rounds, divided by the quiet p99",
            noisy / max(quiet, LEAST_WAIT_SECONDS),
            at_most=longest,
        )
        ratio = crowd / max(quiet, LEAST_WAIT_SECONDS)
        report.count(f"{what}: p99 during bulk billing, s", crowd)
        report.count(f"{what}: p99 during bulk billing, divided by the quiet p99", ratio, at_most=bulk)


def _p99(seconds: Sequence[float]) -> float:
    ranked = sorted(seconds)
    return ranked[int(len(ranked) * 0.99)] if ranked else float("inf")


async def _violations(setup: Setup) -> list[str]:
    merchants = [merchant for merchant, _ in setup.healthy] + setup.unhealthy
    return [
        f"{finding.invariant.name} is violated by {finding.offenders[0]}"
        for merchant in merchants
        for finding in await checks.findings(setup.deps, merchant.account_id)
    ]
