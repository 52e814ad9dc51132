"""`fatura restored` in its own process, with the run's gateway and clock, killed at its n-th statement.

`python -m tests.faults.restore.sweep URL RING BOOKS NOW SINCE KILL_AT` prints its counts as JSON. KILL_AT 0 means that
it is not killed.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import asyncpg

from fatura.usecases.operations.checks import all_accounts
from fatura.usecases.restore import comparison
from tests.faults import breaks
from tests.faults.engine import open_engine
from tests.faults.journal import Journal
from tests.faults.restore.books import book_providers

STATEMENTS = ("execute", "fetch", "fetchrow", "fetchval")


def counting(before_each: Callable[[], None]) -> "type[asyncpg.Connection[asyncpg.Record]]":
    """Return a connection class that calls a function before every statement, including commits."""

    def watched(name: str) -> Any:
        async def call(self: Any, *arguments: Any, **options: Any) -> Any:
            before_each()
            return await getattr(asyncpg.Connection, name)(self, *arguments, **options)

        return call

    members = {name: watched(name) for name in STATEMENTS}
    return cast("type[asyncpg.Connection[asyncpg.Record]]", type("Counting", (asyncpg.Connection,), members))


def _killer(kill_at: int) -> Callable[[], None]:
    left = [kill_at]

    def count() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


async def _sweep(url: str, ring: str, *, books: Path, now: datetime, since: datetime, kill_at: int) -> None:
    engine = open_engine(
        url,
        ring=ring,
        clock=lambda: now,
        providers=book_providers(Journal(books)),
        connection_class=counting(_killer(kill_at)),
    )
    async with engine as deps:
        accounts = await all_accounts(deps)
        for account_id in accounts:
            await comparison.freeze(deps, account_id)
        swept = [await comparison.compare(deps, account_id, since=since) for account_id in accounts]
    counts = {str(kind): count for each in swept for kind, count in each.counts.items()}
    unmatched = [unmatched.charge.charge_id for each in swept for unmatched in each.unmatched]
    problems = [problem for each in swept for problem in each.problems]
    print(json.dumps({"counts": counts, "unmatched": unmatched, "problems": problems}))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    breaks.apply()
    url, ring, books, now, since, kill_at = sys.argv[1:]
    parsed = datetime.fromisoformat(now), datetime.fromisoformat(since), int(kill_at)
    asyncio.run(_sweep(url, ring, books=Path(books), now=parsed[0], since=parsed[1], kill_at=parsed[2]))
