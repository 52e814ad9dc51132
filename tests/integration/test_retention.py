"""The deletion of old rows survives killed workers, and its statements read few rows (D-246, D-247)."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from fatura.store.db import connect
from fatura.usecases.retention import deletion
from fatura.usecases.transaction import load_account
from tests.conftest import fresh_database
from tests.support.databases import as_superuser
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.fatura_processes import environment, run_here, running
from tests.support.push_steps import emit
from tests.support.retention_steps import EVENT_DAYS, age
from tests.support.unlimited import UNLIMITED
from tests.support.world import World, open_world

EVENTS = 20_000
_FILL = (
    """
    INSERT INTO event (account_id, sequence, event_id, type, created_at, data, stored_at)
    SELECT account_id, n, gen_random_uuid(), 'invoice.payment_unexpected', now() - interval '6 years', '{}',
        now() - interval '6 years'
    FROM account, generate_series(1, $1::int4) n
    """,
    """
    INSERT INTO delivery (account_id, sequence, attempts, delivered_at, waits)
    SELECT account_id, n, 1, now(), NULL FROM account, generate_series(1, $1::int4) n
    """,
    """
    INSERT INTO delivery_attempt (account_id, sequence, attempt, url, outcome, response_status, latency_ms, created_at,
        stored_at)
    SELECT account_id, n, 1, 'https://merchant.example/', 'delivered', 200, 20, now(), now() - interval '6 years'
    FROM account, generate_series(1, $1::int4) n
    """,
    "UPDATE account_counter SET last_sequence = $1::int4",
    "UPDATE retention SET kept_from = now() - interval '6 years' WHERE $1::int4 > 0",
)
_LEFT = """
    SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM delivery), (SELECT count(*) FROM delivery_attempt)
"""


@pytest.fixture
async def filled(database_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """A connection that sees all rows of a database whose only account has EVENTS old events."""
    opened = await asyncio.to_thread(
        run_here, "account", "create", "Gym", "--mode", "live", "--json", env=environment(database_url)
    )
    assert json.loads(opened.stdout)["accountId"]
    connection = await asyncpg.connect(as_superuser(database_url))
    for statement in _FILL:
        await connection.execute(statement, EVENTS)
    yield connection
    await connection.close()


@pytest.mark.faults
async def test_a_killed_worker_leaves_whole_batches(
    filled: "asyncpg.Connection[asyncpg.Record]", database_url: str, tmp_path: Path
) -> None:
    """[D-246, D-247]"""
    env = environment(database_url, **UNLIMITED)

    async def left() -> tuple[int, int, int]:
        row = await filled.fetchrow(_LEFT)
        assert row is not None
        return row[0], row[1], row[2]

    for number in range(2):
        before = (await left())[0]
        with running("worker", env=env, output=tmp_path / f"worker{number}.log") as worker:
            async with asyncio.timeout(60):
                while (await left())[0] > before - 2 * deletion.BATCH:  # noqa: ASYNC110 - rows notify nobody
                    await asyncio.sleep(0.01)
            worker.kill()
        events, deliveries, attempts = await left()
        assert 0 < events < EVENTS, "the worker was killed too late"
        assert (events == deliveries, attempts <= events) == (True, True)
        checked = await asyncio.to_thread(run_here, "check", env=env)
        assert checked.returncode == 0, checked.stdout

    with running("worker", env=env, output=tmp_path / "last.log"):
        async with asyncio.timeout(120):
            while (await left())[0]:  # noqa: ASYNC110 - rows notify nobody
                await asyncio.sleep(0.1)
    assert await left() == (0, 0, 0)
    checked = await asyncio.to_thread(run_here, "check", env=env)
    assert checked.returncode == 0, checked.stdout


@pytest_asyncio.fixture
async def aged(server_url: str) -> AsyncIterator[World]:
    """An account with old events and 5,000 younger ones."""
    async with fresh_database(server_url) as url, open_world(url) as world:
        await emit(world, EVENTS)
        await age(world, days=EVENT_DAYS + 1, to=EVENTS - 5_000)
        yield world


@pytest.mark.faults
async def test_a_batch_reads_few_rows(aged: World) -> None:
    """Deleted rows keep their index entries until the next vacuum. A batch must still read few rows. [D-247]"""
    account = await load_account(aged.deps, aged.account_id)
    for _ in range(20):
        assert await deletion.run(aged.deps, account)
    db = await connect(aged.database_url, max_connections=2, connection_class=Explaining)
    try:
        PLANS.clear()
        assert await deletion.run(replace(aged.deps, db=db), account) == deletion.BATCH
    finally:
        await db.close()
    scans = [
        node for plan in PLANS for node in nodes(plan) if node.get("Relation Name") in {"event", "delivery"}
    ]
    assert scans, "no plan was recorded"
    for scan in scans:
        read = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        assert read <= 2 * deletion.BATCH, scan


def test_a_setting_below_its_minimum_is_refused(database_url: str) -> None:
    """[D-246]"""
    env = environment(database_url, FATURA_RETENTION_AUDIT="30")
    ended = run_here("check", env=env)
    assert ended.returncode != 0
    assert "FATURA_RETENTION_AUDIT" in ended.stderr + ended.stdout
