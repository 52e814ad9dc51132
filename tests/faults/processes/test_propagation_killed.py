"""Workers that propagate a plan are killed. Another worker continues, and each subscriber is moved exactly once."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from fatura.usecases.catalog import propagation
from tests.support.crowd import Crowd, open_crowd
from tests.support.fatura_processes import environment, run, running
from tests.support.world import item, plan_body

pytestmark = pytest.mark.faults

SUBSCRIPTIONS = 6_000
MOVED = "SELECT coalesce(sum(moved), 0) FROM propagation WHERE account_id = $1"


async def test_a_killed_worker_loses_no_subscriber(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three workers are killed while they propagate a plan and generate invoices for its subscriptions.

    The last worker completes the propagation. Each subscription gets the new version once, with one event.
    [D-54 target, D-54 terms_changed, D-23 races]
    """
    monkeypatch.setattr(propagation, "WAIT_SECONDS", 0)
    async with open_crowd(database_url) as crowd:
        plan = await crowd.merchant.plan(await crowd.merchant.product(100))
        await crowd.subscribe(plan, count=SUBSCRIPTIONS)
        newer = plan_body(item(await crowd.merchant.product(900)))
        assert (await crowd.merchant.put(f"/v1/plans/{plan['id']}", newer)).status == 200
        started = await crowd.merchant.post(f"/v1/plans/{plan['id']}/propagate", {})
        assert started.status == 202
        await _propagate_with_losses(crowd, database_url, tmp_path)

        answer = (await crowd.merchant.get(f"/v1/plans/{plan['id']}/propagation")).json
        assert (answer["status"], answer["moved"], answer["skipped"]) == ("done", SUBSCRIPTIONS, [])
        counts = """
            SELECT (SELECT count(*) FROM subscription WHERE account_id = $1 AND plan_version = 2),
                (SELECT count(*) FROM subscription_terms WHERE account_id = $1 AND reason = 'propagated'),
                (SELECT count(*) FROM event WHERE account_id = $1 AND type = 'subscription.terms_changed')
        """
        assert [tuple(row) for row in await crowd.sql(counts)] == [(SUBSCRIPTIONS,) * 3]


async def _propagate_with_losses(crowd: Crowd, database_url: str, tmp_path: Path) -> None:
    env = environment(database_url, FATURA_MAX_CONNECTIONS="5", FATURA_LOG_LEVEL="warning")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(running("worker", env=env, output=tmp_path / f"{number}.log"))
            for number in range(3)
        ]
        await crowd.until(MOVED, 1_000)
        workers[0].kill()
        await crowd.until(MOVED, 3_000)
        workers[1].kill()
        await crowd.until("SELECT count(*) FROM propagation WHERE account_id = $1 AND status = 'done'", 1)
        await crowd.until("SELECT count(*) FROM invoice WHERE account_id = $1", SUBSCRIPTIONS)
        assert await asyncio.to_thread(workers[2].stop) == 0
    checked = await asyncio.to_thread(run, "check", env=env)
    assert (checked.returncode, checked.stdout) == (0, "clean: every invariant holds in 1 account(s)\n")
