"""The database's own walls: every unique index, foreign key, check, trigger and policy has to refuse by itself.

What is tried comes from the catalog and from tables written by hand: a wall that is gone lets something through, and
one that nobody tried is told.
"""

import asyncio
from itertools import groupby
from typing import Any

import asyncpg

from tests.faults import place
from tests.faults.constraints import catalog
from tests.faults.constraints.catalog import CHECK, FOREIGN, POLICY, TRIGGER, UNIQUE, Catalog
from tests.faults.constraints.offences import Offenders
from tests.faults.constraints.policies import try_policies
from tests.faults.constraints.rows import LEAD_NOWHERE
from tests.faults.constraints.trials import Tally, lean
from tests.faults.report import Options, Report
from tests.support.populated import populate
from tests.support.world import Merchant, open_world

KINDS = {
    UNIQUE: "unique indexes",
    FOREIGN: "foreign keys",
    CHECK: "checks",
    TRIGGER: "triggers",
    POLICY: "policies",
}


def run(options: Options) -> Report:
    """Lean on every wall alone; both scales try all of them."""
    report = Report("walls", options.seed)
    with place.server() as server_url:
        asyncio.run(_run(server_url, options, report))
    return report


async def _run(server_url: str, options: Options, report: Report) -> None:
    tally = Tally()
    async with place.database(server_url) as url, open_world(url) as world:
        other = await world.another()
        for merchant in (world, other):
            await populate(merchant)
        root: Any = await asyncpg.connect(url.replace("://fatura@", "://postgres@"))
        try:
            found = await catalog.read(root)
            await _lean_on_all(root, found, world, other, options=options, tally=tally)
            rows = {
                table: await root.fetchval(
                    f"SELECT to_jsonb(x) FROM {table} x WHERE account_id = $1 ORDER BY x DESC LIMIT 1",  # noqa: S608 - from the catalog
                    other.account_id,
                )
                for table in found.tables
            }
            assert None not in rows.values(), "the sample accounts have a row in every table"
        finally:
            await root.close()
        await try_policies(url, found, mine=world.account_id, theirs=other.account_id, rows=rows, tally=tally)
    _tell(report, found, tally)


async def _lean_on_all(
    root: Any, catalog: Catalog, mine: Merchant, other: Merchant, *, options: Options, tally: Tally
) -> None:
    theirs = {
        table: await root.fetchrow(
            f"SELECT * FROM {table} WHERE account_id = $1 LIMIT 1",  # noqa: S608 - from the catalog
            other.account_id,
        )
        for table in catalog.tables
    }
    offences = list(Offenders(catalog, mine.account_id, theirs).all())
    for wall, leaning in groupby(sorted(offences, key=lambda each: str(each.wall)), lambda each: each.wall):
        options.progress(tally.offences, len(offences), str(wall))
        await lean(root, catalog, list(leaning), tally)


def _tell(report: Report, catalog: Catalog, tally: Tally) -> None:
    for kind, many in KINDS.items():
        there = set(catalog.of(kind))
        report.count(f"{many} in the catalog", len(there), at_least=1)
        report.count("… seen to refuse, each alone", len(there & tally.held), at_least=len(there))
        report.problems += [f"nothing was tried at the {wall}" for wall in there - tally.held - tally.failed]
    report.count("statements that had to be refused", tally.offences, at_least=600)
    report.count("columns that lead to no row, and say why", len(LEAD_NOWHERE))
    report.problems += tally.problems
