"""Bill through gateways that lose responses, create charges late and show charges late.

Workers and gateways are separate processes. The run kills and freezes workers while they bill. In the end, the journals
of gateways and merchants must agree with the database (D-33, D-35).
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
from tests.faults.gateway.settle import settle
from tests.faults.gateway.workers import Workers, workers
from tests.faults.gateway.world import Kind, World, kinds, open_world
from tests.faults.report import Options, Report, Scale

SPEED = 10
"""Seconds of the run's clock per real second. A time-out of 20 s takes 2 real seconds, and a lease of 60 s takes 6."""
AFTER_DUE_SECONDS = 4 * 86400
LATEST_FOUND_SECONDS = 60
"""The run limits the second charges of invoices only at gateways that create late charges within this many seconds.

At a slower gateway, a look-up may miss a charge that appears later, so the engine cannot exclude a second charge.
"""
SECOND_CHARGES_PERMILLE = 5
"""Maximum number of second charges per thousand charges.

A worker that is frozen between its lease check and its request can create a second charge, which is canceled later.
"""
INTERFERENCE_SECONDS = 0.2
INTERFERENCE_PERMILLE = 60
"""Number of requests that cancel or retry invoices during the charging, per thousand charges."""


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
        with workers(world, folder, count=options.pick(short=2, full=3)) as running:
            await _charge(options, report, world, running)
        report.problems += await ledgers.check(world.deps, url, world.journal)
        await _count(options, report, world, running=running, gateway_kinds=gateway_kinds)


async def _charge(options: Options, report: Report, world: World, running: Workers) -> None:
    rng = random.Random(options.seed)  # noqa: S311 - not for security
    charges = sum(kind.charges for kind in set(world.account_kinds.values()))
    frozen = (65.0, options.pick(short=75, full=150))
    give_up_at = time.monotonic() + options.pick(short=300, full=1200)
    killing = asyncio.create_task(
        running.kill_and_freeze(rng, until_calls_hit=charges * 2 // 100 + 1, frozen_seconds=frozen)
    )
    interfering = asyncio.create_task(
        _interfere(world, rng, count=charges * INTERFERENCE_PERMILLE // 1000, report=report)
    )
    showing = asyncio.create_task(_show_progress(options, world, charges))
    unsettled = await settle(world, running, include_polls=False, give_up_at=give_up_at)
    world.clock.jump(AFTER_DUE_SECONDS)
    unsettled = unsettled or await settle(world, running, include_polls=True, give_up_at=give_up_at)
    for task in (killing, interfering, showing):
        task.cancel()
    ended = await asyncio.gather(killing, interfering, showing, return_exceptions=True)
    report.problems += [repr(each) for each in ended if isinstance(each, Exception)]
    report.problems += [
        f"a worker ended unexpectedly with exit code {code}" for code in running.unexpected_exits()
    ]
    report.count("rows with unfinished work at the time limit", unsettled, at_most=0)


async def _show_progress(options: Options, world: World, charges: int) -> None:
    while True:
        issued = world.journal.count("charge", "state <> 'canceled'")
        options.progress(min(issued, charges), charges, "charges")
        await asyncio.sleep(1)


async def _interfere(world: World, rng: random.Random, *, count: int, report: Report) -> None:
    """Cancel random invoices, and retry the issuance of other random invoices, in any state."""
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
        await asyncio.sleep(INTERFERENCE_SECONDS)


async def _count(
    options: Options, report: Report, world: World, *, running: Workers, gateway_kinds: Sequence[Kind]
) -> None:
    made = {
        (row["account_id"], row["invoice_id"]): row
        for row in world.journal.read(
            """
            SELECT account_id, invoice_id, count(*) AS made, sum(state IN ('open', 'paid')) AS live
            FROM charge GROUP BY 1, 2
            """
        )
    }
    of_kind: dict[Kind, list[int]] = {kind: [] for kind in gateway_kinds}
    for (account_id, _), row in made.items():
        kind = next(kind for account, kind in world.account_kinds.items() if str(account) == account_id)
        of_kind[kind].append(row["made"])
    for kind, numbers in of_kind.items():
        report.count(f"invoices charged, {kind.name}", len(numbers), at_least=kind.charges * 0.9)
    report.count("charged twice", sum(row["live"] > 1 for row in made.values()), at_most=0)
    report.count("workers killed and frozen", running.counts.total(), at_least=1)
    charges = sum(kind.charges for kind in gateway_kinds)
    report.count(
        "charge calls that were open in killed or frozen workers (percent)",
        100 * running.calls_hit / charges,
        # No minimum in a short run, because most charges may be created before the first kill.
        at_least=2 if options.scale is Scale.FULL else None,
    )
    for kind, numbers in of_kind.items():
        late = kind.faults.late_seconds > LATEST_FOUND_SECONDS
        at_most = None if late else kind.charges * SECOND_CHARGES_PERMILLE // 1000
        report.count(
            f"second charges created, {kind.name}", sum(number - 1 for number in numbers), at_most=at_most
        )
    report.count("second charges without an event", len(await _unreported(world)), at_most=0)


async def _unreported(world: World) -> Sequence[str]:
    """Return the charges that belong to no invoice and that no `invoice.issue_failed` event names."""
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
