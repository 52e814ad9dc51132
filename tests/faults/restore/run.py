"""Restore old backups repeatedly. No charge may be lost or created twice.

Each trial bills, makes a backup, continues to bill, and replaces the database with the backup. The trial then runs the
comparison of `fatura restored`, which may be killed. After more days of billing, the trial checks that the gateway's
charges match the database.
"""

import asyncio
import random
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from fatura.usecases.restore import comparison
from fatura.workers.lanes import LANES
from tests.faults import breaks
from tests.faults.place import server
from tests.faults.report import Options, Report, Scale
from tests.faults.restore.story import Story
from tests.faults.restore.truth import Truth, judge
from tests.support.world import run_until_idle

STORIES = 4
RESTORES_A_STORY = 5
DAYS_AFTER = 3
"""All work must be complete this many days after a restore."""
DIES = 0.7
"""The chance that the lanes are canceled before a backup. A comparison is canceled with the same chance."""


def run(options: Options) -> Report:
    breaks.apply()
    report, truth = Report("restore", options.seed), Truth()
    with server() as server_url, tempfile.TemporaryDirectory(prefix="fatura-restore-") as folder:
        asyncio.run(_stories(server_url, Path(folder), options=options, truth=truth))
    _count(report, options, truth=truth)
    return report


async def _stories(server_url: str, folder: Path, *, options: Options, truth: Truth) -> None:
    for number in range(options.pick(short=1, full=STORIES)):
        async with _story(server_url, folder, seed=f"{options.seed}/{number}") as story:
            await _run_story(story, options, truth=truth, number=number)


def _count(report: Report, options: Options, *, truth: Truth) -> None:
    full = options.scale is Scale.FULL
    report.count("restores", truth.restores, at_least=options.pick(short=2, full=STORIES * RESTORES_A_STORY))
    report.count("charges newer than their backup", truth.newer, at_least=options.pick(short=5, full=500))
    report.count("newer charges of invoices in the backup", truth.of_known_invoices, at_least=1)
    report.count(
        "newer charges of cycles billed after the backup, matched by id", truth.of_lost_invoices, at_least=1
    )
    report.count("newer charges of reissued invoices", truth.of_reissues, at_least=1)
    report.count("newer charges of the unpaid part", truth.of_rests, at_least=1 if full else 0)
    report.count("newer charges of moved subscriptions", truth.of_moves, at_least=1)
    report.count(
        "newer charges of subscriptions created after the backup, reported to the operator",
        truth.unmatched,
        at_least=1 if full else 0,
    )
    report.count("newer charges with another amount than the new total, left to a person", truth.parked)
    report.count("newer charges with another amount, paid and therefore adopted", truth.paid_otherwise)
    report.count("killed comparisons", truth.kills, at_least=1)
    report.count("charges made twice", truth.twice, at_most=0)
    report.count("charges lost", truth.lost, at_most=0)
    report.problems += truth.problems


@asynccontextmanager
async def _story(server_url: str, folder: Path, *, seed: str) -> AsyncGenerator[Story]:
    story = Story(server_url, folder, random.Random(seed), seed)  # noqa: S311 - not for security
    await story.create()
    yield story
    await story.drop()


async def _run_story(story: Story, options: Options, *, truth: Truth, number: int) -> None:
    restores = options.pick(short=2, full=RESTORES_A_STORY)
    async with story.engine() as merchant:
        await story.enroll(merchant, options.pick(short=18, full=50))
    for trial in range(restores):
        done = number * restores + trial
        options.progress(done, restores * options.pick(short=1, full=STORIES), f"{truth.newer} newer charges")
        await _trial(story, truth)


async def _trial(story: Story, truth: Truth) -> None:
    rng = story.rng
    async with story.engine() as merchant:
        story.now += timedelta(hours=rng.randrange(1, 72))
        await story.work(merchant.deps, die_at=rng.randrange(1, 300) if rng.random() < DIES else 0)
    await story.back_up()
    since = story.now
    async with story.engine() as merchant:
        known = list(story.subscriptions)
        if rng.random() < 0.3:
            await story.enroll(merchant, 1)
        await story.continue_billing(merchant, steps=rng.randrange(4, 9))
        story.subscriptions = known
        await truth.record_lost_database(story, since=since)
    await story.restore()
    story.now += timedelta(hours=1)
    await _compare(story, truth)
    async with story.engine() as merchant:
        for _ in range(DAYS_AFTER):
            story.now += timedelta(days=1)
            await story.work(merchant.deps)
            await story.enter_values(merchant)
        await judge(story, merchant, truth)


async def _compare(story: Story, truth: Truth) -> None:
    """Run a comparison to its end, concurrently with the lanes.

    Before this comparison, run up to two comparisons that may not reach their end: one in a process that may be killed,
    and one in a task that may be canceled.
    """
    rng, since = story.rng, truth.since
    if rng.random() < 0.2:
        compared = await story.compare_in_process(since=since, kill_at=rng.randrange(20, 60))
        truth.kills += compared is None
    async with story.engine() as merchant:
        if rng.random() < DIES:
            truth.kills += (
                await story.compare(merchant.deps, since=since, die_at=rng.randrange(1, 40)) is None
            )
        assert story.opened is not None
        await comparison.freeze(merchant.deps, story.opened.account_id)
        concurrent = asyncio.create_task(run_until_idle(merchant.deps, LANES))
        compared = await story.compare(merchant.deps, since=since)
        await concurrent
    assert compared is not None
    truth.reported = {each.charge.charge_id for each in compared.unmatched}
    truth.problems += [f"{story.seed}: not compared: {problem}" for problem in compared.problems]
