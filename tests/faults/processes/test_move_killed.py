"""Workers that move subscriptions are killed.

Other workers continue immediately, and move each subscription exactly once.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from fatura.usecases.subscriptions import connection_moves
from tests.support.crowd import Crowd, open_crowd
from tests.support.fatura_processes import environment, run, running

pytestmark = pytest.mark.faults

SUBSCRIPTIONS = 4_000
MOVED = "SELECT coalesce(sum(moved), 0) FROM connection_move WHERE account_id = $1"


async def test_a_killed_worker_leaves_no_subscription_behind(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three workers are killed while they move subscriptions and generate invoices for them.

    The last worker completes the move. Each subscription is moved once, with one event. [D-59 batches, D-59 move]
    """
    monkeypatch.setattr(connection_moves, "WAIT_SECONDS", 0)
    async with open_crowd(database_url) as crowd:
        await crowd.merchant.set_up_gateway(behaviour="never_pay")
        plan = await crowd.merchant.plan(await crowd.merchant.product(100))
        await crowd.subscribe(plan, count=SUBSCRIPTIONS)
        (old,) = [
            each["connectionId"] for each in (await crowd.merchant.get("/v1/integration")).json["gateways"]
        ]
        new = (await crowd.merchant.connect(behaviour="never_pay"))["connectionId"]
        path = f"/v1/integration/gateways/{old}/move"
        assert (await crowd.merchant.post(path, {"toConnectionId": new})).status == 202
        await _move_with_losses(crowd, database_url, tmp_path)

        answer = (await crowd.merchant.get(path)).json
        assert (answer["status"], answer["moved"], answer["skipped"]) == ("done", SUBSCRIPTIONS, [])
        counts = """
            SELECT (SELECT count(*) FROM subscription WHERE account_id = $1 AND connection_id = $2::text::uuid),
                (SELECT count(*) FROM event WHERE account_id = $1 AND type = 'subscription.gateway_changed')
        """
        assert [tuple(row) for row in await crowd.sql(counts, new)] == [(SUBSCRIPTIONS,) * 2]


async def _move_with_losses(crowd: Crowd, database_url: str, tmp_path: Path) -> None:
    env = environment(database_url, FATURA_MAX_CONNECTIONS="5", FATURA_LOG_LEVEL="warning")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(running("worker", env=env, output=tmp_path / f"{number}.log"))
            for number in range(3)
        ]
        await crowd.until(MOVED, 500)
        workers[0].kill()
        await crowd.until(MOVED, 1_500)
        workers[1].kill()
        await crowd.until("SELECT count(*) FROM connection_move WHERE account_id = $1 AND status = 'done'", 1)
        await crowd.until("SELECT count(*) FROM invoice WHERE account_id = $1", SUBSCRIPTIONS)
        assert await asyncio.to_thread(workers[2].stop) == 0
    checked = await asyncio.to_thread(run, "check", env=env)
    # `check` may report other work, because the killed workers' leases of invoices have not ended yet
    assert "connection" not in checked.stdout, checked.stdout
