"""A gateway that lies: answers lost, charges made late and hidden, look-ups that fail; workers killed and frozen.

Real worker processes, a gateway and a merchant in processes of their own, and three ledgers that must agree in the end.
"""

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.faults import ledgers, place
from tests.faults.clock import started
from tests.faults.gateway.rest import rest
from tests.faults.gateway.workers import Workers, workers
from tests.faults.gateway.world import Kind, World, kinds, open_world
from tests.faults.report import Options, Report, Scale

SPEED = 10
"""Seconds of the run's clock a second: a call's 20 seconds are two real ones, a lease six."""
AFTER_DUE_SECONDS = 4 * 86400
LATE_HELD_SECONDS = 60
"""How late a charge may be made that the look-ups before a second sending still find."""
SECONDS_PERMILLE = 5
"""What a freeze between a worker's last look at the clock and its first byte may cause; these are canceled, too."""
MEDDLE_SECONDS = 0.2
MEDDLED_PERMILLE = 60
"""How many invoices are canceled, or issued by hand, while they are being charged."""


def run(options: Options) -> Report:
    """Charge through gateways that lie, while workers die and freeze, and compare the three ledgers (D-33, D-35)."""
    report = Report("liar", options.seed)
    with tempfile.TemporaryDirectory(prefix="fatura-liar-") as folder, place.server() as server:
        uvloop.run(_run(options, report, server, Path(folder)))
    return report


async def _run(options: Options, report: Report, server: str, folder: Path) -> None:
    clock = started(speed=SPEED, jumps=folder / "clock")
    tried = kinds(
        charges=options.pick(short=300, full=10_100),
        few=options.pick(short=20, full=250),
        accounts=options.pick(short=2, full=4),
        seed=options.seed,
    )
    async with (
        place.database(server) as url,
        open_world(url, folder, clock=clock, kinds=tried) as world,
    ):
        with workers(world, folder, count=options.pick(short=2, full=3)) as running:
            await _charge(options, report, world, running)
        report.problems += await ledgers.check(world.deps, url, world.journal)
        await _count(options, report, world, running=running, tried=tried)


async def _charge(options: Options, report: Report, world: World, running: Workers) -> None:
    """Let it all happen, until everything rests."""
    rng = random.Random(options.seed)  # noqa: S311 - it guards nothing
    charges = sum(kind.charges for kind in set(world.account_kinds.values()))
    frozen = (65.0, options.pick(short=75, full=150))
    give_up_at = time.monotonic() + options.pick(short=300, full=1200)
    striking = asyncio.create_task(
        running.strike(rng, until_hits=charges * 2 // 100 + 1, frozen_seconds=frozen)
    )
    meddling = asyncio.create_task(
        _meddle(world, rng, count=charges * MEDDLED_PERMILLE // 1000, report=report)
    )
    telling = asyncio.create_task(_tell(options, world, charges))
    left = await rest(world, running, asked_after=False, give_up_at=give_up_at)
    world.clock.jump(AFTER_DUE_SECONDS)
    left = left or await rest(world, running, asked_after=True, give_up_at=give_up_at)
    for task in (striking, meddling, telling):
        task.cancel()
    ended = await asyncio.gather(striking, meddling, telling, return_exceptions=True)
    report.problems += [repr(each) for each in ended if isinstance(each, Exception)]
    report.problems += [f"a worker ended by itself with exit code {code}" for code in running.died()]
    report.count("not at rest in time", left, at_most=0)


async def _tell(options: Options, world: World, charges: int) -> None:
    while True:
        issued = world.journal.count("charge", "state <> 'canceled'")
        options.progress(min(issued, charges), charges, "charges")
        await asyncio.sleep(1)


async def _meddle(world: World, rng: random.Random, *, count: int, report: Report) -> None:
    """Cancel invoices and issue them by hand, whatever becomes of them just then."""
    by_id = {merchant.account_id: merchant for merchant in world.merchants}
    answered: Counter[str] = Counter()
    while answered.total() < count:
        rows = await world.tables.fetch(
            "SELECT account_id, invoice_id FROM invoice ORDER BY random() LIMIT 5"
        )
        for row in rows:
            verb = rng.choice(("cancel", "retry-issuance"))
            answer = await by_id[row["account_id"]].post(f"/v1/invoices/{row['invoice_id']}/{verb}")
            answered[f"{verb} {answer.status}"] += 1
            if answer.status not in {200, 409, 503}:
                report.problems.append(f"{verb} was answered {answer.status}: {answer.body!r}")
        await asyncio.sleep(MEDDLE_SECONDS)


async def _count(
    options: Options, report: Report, world: World, *, running: Workers, tried: Sequence[Kind]
) -> None:
    """Put down what was tried, and what the gateways' books say."""
    made = {
        (row["account_id"], row["invoice_id"]): row
        for row in world.journal.read(
            """
            SELECT account_id, invoice_id, count(*) AS made, sum(state IN ('open', 'paid')) AS live
            FROM charge GROUP BY 1, 2
            """
        )
    }
    of_kind: dict[Kind, list[int]] = {kind: [] for kind in tried}
    for (account_id, _), row in made.items():
        kind = next(kind for account, kind in world.account_kinds.items() if str(account) == account_id)
        of_kind[kind].append(row["made"])
    for kind, numbers in of_kind.items():
        report.count(f"invoices charged, {kind.name}", len(numbers), at_least=kind.charges * 0.9)
    report.count("charged twice", sum(row["live"] > 1 for row in made.values()), at_most=0)
    report.count("workers killed and frozen", running.strikes.total(), at_least=1)
    charges = sum(kind.charges for kind in tried)
    report.count(
        "charges on their way in them (percent)",
        100 * running.hits / charges,
        at_least=2
        if options.scale is Scale.FULL
        else None,  # a few charges may be made before the first blow
    )
    for kind, numbers in of_kind.items():
        late = kind.lies.late_seconds > LATE_HELD_SECONDS
        at_most = None if late else kind.charges * SECONDS_PERMILLE // 1000
        report.count(
            f"second charges made, {kind.name}", sum(number - 1 for number in numbers), at_most=at_most
        )
    report.count("second charges that nobody was told of", len(await _untold(world)), at_most=0)


async def _untold(world: World) -> Sequence[str]:
    """Return the charges of charged invoices that are not the invoice's own, and stand in no event."""
    rows = await world.tables.fetch(
        """
        SELECT gateway_invoice_id FROM invoice WHERE gateway_invoice_id IS NOT NULL
        UNION ALL
        SELECT data::jsonb -> 'error' ->> 'gatewayInvoiceId' FROM event WHERE type = 'invoice.issue_failed'
        """
    )
    known = {row[0] for row in rows}
    return [
        row["charge_id"]
        for row in world.journal.read("SELECT charge_id FROM charge")
        if row["charge_id"] not in known
    ]
