"""Many worker processes share the same due work, and some of them are killed."""

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.crowd import Crowd, open_crowd
from tests.support.fatura_processes import Running, environment, run, running, stop_all

pytestmark = pytest.mark.faults

WORKERS = 8
SUBSCRIPTIONS = 10_000
CYCLES = 2
INVOICES = "SELECT count(*) FROM invoice WHERE account_id = $1"


async def test_eight_workers_bill_each_cycle_once_if_three_are_killed(
    database_url: str, tmp_path: Path
) -> None:
    """[D-28, D-5, D-33]"""
    async with open_crowd(database_url) as crowd:
        await _bill_with_losses(crowd, database_url, tmp_path)


async def _bill_with_losses(crowd: Crowd, database_url: str, tmp_path: Path) -> None:
    await crowd.subscribe(await crowd.merchant.plan(), count=SUBSCRIPTIONS)
    env = environment(database_url, FATURA_MAX_CONNECTIONS="5", FATURA_LOG_LEVEL="warning")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(running("worker", env=env, output=tmp_path / f"{number}.log"))
            for number in range(WORKERS)
        ]
        await crowd.until(INVOICES, 1)
        await _kill_some(crowd, workers[:1], among=SUBSCRIPTIONS)
        await crowd.until(INVOICES, SUBSCRIPTIONS)
        await crowd.fall_due()
        await _kill_some(crowd, workers[1:3], among=SUBSCRIPTIONS, beyond=SUBSCRIPTIONS)
        await crowd.until(INVOICES, SUBSCRIPTIONS * CYCLES)
        codes = await asyncio.to_thread(stop_all, workers[3:])

    assert codes == [0] * 5
    per_cycle = "SELECT cycle, count(DISTINCT subscription_id), count(*) FROM invoice WHERE account_id = $1 GROUP BY 1"
    found = sorted(tuple(row) for row in await crowd.sql(per_cycle))
    assert found == [(cycle, SUBSCRIPTIONS, SUBSCRIPTIONS) for cycle in range(1, CYCLES + 1)]
    checked = await asyncio.to_thread(run, "check", env=env)
    assert (checked.returncode, checked.stdout) == (0, "clean: every invariant holds in 1 account(s)\n")


async def _kill_some(crowd: Crowd, victims: list[Running], *, among: int, beyond: int = 0) -> None:
    """Kill each victim at a random moment, while the workers generate the next `among` invoices.

    `beyond` is the number of invoices that already exist.
    """
    for share in sorted(random.uniform(0.02, 0.9) for _ in victims):  # noqa: S311 - moments, not secrets
        await crowd.until(INVOICES, beyond + int(share * among))
        victims.pop().kill()
