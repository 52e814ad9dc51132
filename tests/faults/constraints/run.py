"""Test each unique index, foreign key, check, trigger and policy alone. Each must refuse the rows that it forbids.

Violations are derived from the catalog or written by hand. The run reports each violation that PostgreSQL accepts, and
each constraint for which the run has no violation.
"""

import asyncio
from itertools import groupby
from typing import Any

import asyncpg

from tests.faults import place
from tests.faults.constraints import catalog
from tests.faults.constraints.catalog import CHECK, FOREIGN, POLICY, TRIGGER, UNIQUE, Catalog
from tests.faults.constraints.policies import try_policies
from tests.faults.constraints.rows import NO_FOREIGN_KEY
from tests.faults.constraints.trials import Tally, try_violations
from tests.faults.constraints.violations import Violations
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
    """Try all constraints, even in a short run."""
    report = Report("constraints", options.seed)
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
            await _try_constraints(root, found, world, other, options=options, tally=tally)
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
    _report(report, found, tally)


async def _try_constraints(
    root: Any, catalog: Catalog, mine: Merchant, other: Merchant, *, options: Options, tally: Tally
) -> None:
    theirs = {
        table: await root.fetchrow(
            f"SELECT * FROM {table} WHERE account_id = $1 LIMIT 1",  # noqa: S608 - from the catalog
            other.account_id,
        )
        for table in catalog.tables
    }
    violations = list(Violations(catalog, mine.account_id, theirs).all())
    for constraint, group in groupby(
        sorted(violations, key=lambda each: str(each.constraint)), lambda each: each.constraint
    ):
        options.progress(tally.violations, len(violations), str(constraint))
        await try_violations(root, catalog, list(group), tally)


def _report(report: Report, catalog: Catalog, tally: Tally) -> None:
    for kind, plural in KINDS.items():
        existing = set(catalog.of(kind))
        report.count(f"{plural} in the catalog", len(existing), at_least=1)
        report.count(
            f"{plural} that refused their violations, each alone",
            len(existing & tally.enforced),
            at_least=len(existing),
        )
        report.problems += [
            f"no violation for the {constraint}" for constraint in existing - tally.enforced - tally.failed
        ]
    report.count("statements that must be refused", tally.violations, at_least=600)
    report.count("columns documented as having no foreign key", len(NO_FOREIGN_KEY))
    report.problems += tally.problems
