"""Run the comparison of `fatura restored` in its own process, which may kill itself midway.

`python -m tests.faults.restore.compare_process URL RING JOURNAL NOW SINCE KILL_AT` prints the comparison's counts,
unmatched charges and problems as JSON. The process kills itself before its SQL statement number KILL_AT. With
KILL_AT 0, it completes.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from fatura.usecases.operations.checks import all_accounts
from fatura.usecases.restore import comparison
from tests.faults import breaks
from tests.faults.connections import Send, connection_class
from tests.faults.engine import open_engine
from tests.faults.journal import Journal
from tests.faults.restore.gateway import journal_providers


def counting(before_each: Callable[[], None]) -> "type[asyncpg.Connection[asyncpg.Record]]":
    """Return a connection class that calls `before_each` before every statement, including commits."""

    async def around(connection: Any, sql: str, send: Send, *, is_prepared: bool) -> Any:
        before_each()
        return await send()

    return connection_class(around)


def _killer(kill_at: int) -> Callable[[], None]:
    left = [kill_at]

    def count() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


async def _compare(
    url: str, ring: str, *, journal: Path, now: datetime, since: datetime, kill_at: int
) -> None:
    engine = open_engine(
        url,
        ring=ring,
        clock=lambda: now,
        providers=journal_providers(Journal(journal)),
        connection_class=counting(_killer(kill_at)),
    )
    async with engine as deps:
        accounts = await all_accounts(deps)
        for account_id in accounts:
            await comparison.freeze(deps, account_id)
        reports = [await comparison.compare(deps, account_id, since=since) for account_id in accounts]
    counts = {str(kind): count for each in reports for kind, count in each.counts.items()}
    unmatched = [unmatched.charge.charge_id for each in reports for unmatched in each.unmatched]
    problems = [problem for each in reports for problem in each.problems]
    print(json.dumps({"counts": counts, "unmatched": unmatched, "problems": problems}))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    breaks.apply()
    url, ring, journal, now, since, kill_at = sys.argv[1:]
    parsed = datetime.fromisoformat(now), datetime.fromisoformat(since), int(kill_at)
    asyncio.run(_compare(url, ring, journal=Path(journal), now=parsed[0], since=parsed[1], kill_at=parsed[2]))
