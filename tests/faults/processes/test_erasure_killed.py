"""Workers that erase a customer are killed. Another worker continues, and nothing of the customer is left."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from fatura.usecases.subscriptions import erasure
from tests.support.crowd import Crowd, open_crowd
from tests.support.erasure_steps import erase
from tests.support.fatura_processes import environment, run, running

pytestmark = pytest.mark.faults

SUBSCRIPTIONS = 1_500
GENERATED = "SELECT count(*) FROM invoice WHERE account_id = $1"
ONE_CUSTOMER = """
    UPDATE subscription s SET external_ref = 'ana-' || s.subscription_id, customer_id = (
        SELECT c.customer_id FROM customer c WHERE c.account_id = $1 ORDER BY c.customer_id LIMIT 1
    ) WHERE s.account_id = $1
"""
CLOSE = (
    "UPDATE subscription SET status = 'canceled', canceled_at = now() WHERE account_id = $1",
    """
    UPDATE invoice SET status = 'canceled', canceled_at = now(), next_attempt_at = NULL, lease_until = NULL
    WHERE account_id = $1 AND status NOT IN ('paid', 'canceled')
    """,
    """
    UPDATE charge SET stage = 'failed', closed_at = now()
    WHERE account_id = $1 AND stage IN ('planned', 'sending', 'unknown', 'absent')
    """,
)
ERASED_EVENTS = "SELECT count(*) FROM event WHERE account_id = $1 AND data LIKE '%[erased]%'"
DONE = "SELECT count(*) FROM erasure WHERE account_id = $1 AND stage = 'done'"
LEFT = """
    SELECT (SELECT count(*) FROM event e WHERE e.account_id = $1 AND e.data LIKE '%ana%'),
        (SELECT count(*) FROM subscription s WHERE s.account_id = $1 AND s.external_ref LIKE 'ana-%'),
        (SELECT count(*) FROM event e WHERE e.account_id = $1 AND e.type = 'customer.erased')
"""


async def test_a_killed_worker_leaves_nothing_of_the_customer(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-226]"""
    monkeypatch.setattr(erasure, "WAIT_SECONDS", 0)
    async with open_crowd(database_url) as crowd:
        plan = await crowd.merchant.plan(await crowd.merchant.product(100))
        await crowd.subscribe(plan, count=SUBSCRIPTIONS)
        await crowd.sql(ONE_CUSTOMER)
        env = environment(database_url, FATURA_MAX_CONNECTIONS="5", FATURA_LOG_LEVEL="warning")
        with running("worker", env=env, output=tmp_path / "billing.log") as worker:
            await crowd.until(GENERATED, SUBSCRIPTIONS)
            assert await asyncio.to_thread(worker.stop) == 0
        for statement in CLOSE:
            await crowd.sql(statement)
        [customer] = await crowd.sql("SELECT customer_id FROM subscription WHERE account_id = $1 LIMIT 1")
        answer = await erase(crowd.merchant, str(customer["customer_id"]))
        assert answer.status == 202, answer.body
        await _erase_with_losses(crowd, env, tmp_path)

        assert [tuple(row) for row in await crowd.sql(LEFT)] == [(0, 0, 1)]
        again = await erase(crowd.merchant, str(customer["customer_id"]))
        assert (again.status, again.json["erasedAt"] is not None) == (200, True)


async def _erase_with_losses(crowd: Crowd, env: dict[str, str], tmp_path: Path) -> None:
    with ExitStack() as stack:
        for number, count in enumerate((1, 500)):
            worker = stack.enter_context(running("worker", env=env, output=tmp_path / f"{number}.log"))
            await crowd.until(ERASED_EVENTS, count)
            worker.kill()
            assert await crowd.sql(f"{DONE} LIMIT 1") == [(0,)], "the worker was killed before the end"
        stack.enter_context(running("worker", env=env, output=tmp_path / "last.log"))
        await crowd.until(DONE, 1)
    checked = await asyncio.to_thread(run, "check", env=env)
    assert "event_numbers" not in checked.stdout
