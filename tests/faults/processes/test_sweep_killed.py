"""A worker is killed in the middle of a sweep. Another worker continues, and the sweep covers every charge."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.crowd import Crowd, open_crowd
from tests.support.fatura_processes import environment, run, running
from tests.support.populated import connected
from tests.support.sandbox_steps import SILENTLY

pytestmark = pytest.mark.faults

SUBSCRIPTIONS = 600
DOUBLES = 20
DOUBLE = """
    INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents, currency,
        payment_method, due_date, status, is_double, created_at)
    SELECT account_id, 'sbx_' || replace(gen_random_uuid()::text, '-', ''), connection_id, invoice_id, attempt,
        amount_cents, currency, payment_method, due_date, 'open', true, created_at
    FROM sandbox_charge WHERE account_id = $1 ORDER BY random() LIMIT $2
"""
ORDERED = """
    SELECT c.charge_id FROM charge c JOIN sandbox_charge b ON b.charge_id = c.gateway_invoice_id
    WHERE c.account_id = $1 ORDER BY b.created_at, b.charge_id OFFSET $2 LIMIT 1
"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND $1::uuid IS NOT NULL"
PAID = "SELECT count(*) FROM invoice WHERE account_id = $1 AND status = 'paid'"


async def test_a_killed_worker_leaves_out_no_charge(database_url: str, tmp_path: Path) -> None:
    """A worker is killed in the middle of a sweep, and another worker continues this sweep.

    Together, they record every payment and cancel every duplicate charge. [D-161]
    """
    async with open_crowd(database_url) as crowd:
        await crowd.merchant.set_up_gateway(behaviour="never_pay")
        plan = await crowd.merchant.plan(await crowd.merchant.product(100))
        await crowd.subscribe(plan, count=SUBSCRIPTIONS)
        await crowd.merchant.run("generation", "issuance", "reconciliation")
        await crowd.sql(f"{SILENTLY['payment']} WHERE account_id = $1")
        await crowd.sql(DOUBLE, DOUBLES)
        await crowd.sql("UPDATE connection_sweep SET next_sweep_at = '2000-01-01' WHERE account_id = $1")
        env = environment(database_url, FATURA_MAX_CONNECTIONS="8", FATURA_LOG_LEVEL="warning")

        async with _charge_held(crowd, database_url, place=SUBSCRIPTIONS // 2):
            with running("worker", env=env, output=tmp_path / "killed.log") as worker:
                await crowd.until(WAITING, 1)
                worker.kill()
        (cut,) = await crowd.sql("SELECT * FROM connection_sweep WHERE account_id = $1")
        assert cut["started_at"] is not None, "the sweep was in progress"
        assert (await crowd.sql(PAID))[0][0] < SUBSCRIPTIONS
        await crowd.end_leases()
        await crowd.sql("UPDATE connection_sweep SET lease_until = now() WHERE account_id = $1")

        with running("worker", env=env, output=tmp_path / "other.log") as worker:
            await crowd.until(
                "SELECT count(*) FROM connection_sweep WHERE account_id = $1 AND started_at IS NULL", 1
            )
            await crowd.sql("UPDATE unmatched_charge SET next_look_at = '2000-01-01' WHERE account_id = $1")
            await crowd.until(PAID, SUBSCRIPTIONS)
            canceled = "SELECT count(*) FROM sandbox_charge WHERE account_id = $1 AND status = 'canceled'"
            await crowd.until(canceled, DOUBLES)
            assert await asyncio.to_thread(worker.stop) == 0
        (done,) = await crowd.sql("SELECT * FROM connection_sweep WHERE account_id = $1")
        assert done["swept_to"] == cut["started_at"], "it was one sweep"
        assert len(await crowd.merchant.events("invoice.paid")) == SUBSCRIPTIONS
        assert len(await crowd.merchant.events("invoice.issue_failed")) == DOUBLES
        checked = await asyncio.to_thread(run, "check", env=env)
        assert (checked.returncode, checked.stdout) == (0, "clean: every invariant holds in 1 account(s)\n")


@asynccontextmanager
async def _charge_held(crowd: Crowd, database_url: str, *, place: int) -> AsyncGenerator[None]:
    """Lock the charge at index `place` of the provider's list, so that a sweep stops at this charge."""
    ((charge_id,),) = await crowd.sql(ORDERED, place)
    account_id = crowd.merchant.account_id
    async with connected(database_url, account_id) as connection, connection.transaction():
        await connection.fetch("SELECT FROM charge WHERE charge_id = $1 FOR UPDATE", charge_id)
        yield
