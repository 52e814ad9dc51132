"""Claims and polls read few rows. The tests count them on connections like those of the engine."""

from datetime import timedelta

import asyncpg
import pytest

from fatura.store.billing import generation
from fatura.store.db import connect
from fatura.store.discovery import MAX_DUE_ROWS, discover
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.world import World

ROWS_READ = """
    SELECT coalesce(sum(t.idx_tup_fetch + t.seq_tup_read), 0)::int8 AS rows FROM pg_stat_xact_user_tables t
    WHERE t.relname = 'customer' AND $1::uuid IS NOT NULL
"""
DISCOVERED = """
    SELECT coalesce(sum(t.idx_tup_fetch + t.seq_tup_read), 0)::int8 AS rows FROM pg_stat_xact_user_tables t
    WHERE t.relname = 'subscription'
"""
CLAIMED = 200
IDLE = 20


@pytest.fixture
def world(fresh_world: World) -> World:
    """A world on a new database, because deleted rows would count as rows that were read."""
    return fresh_world


async def test_a_batch_reads_only_its_own_customers(world: World) -> None:
    """PostgreSQL has no statistics about the new account, and could choose a bad index for it. [D-28]"""
    plan = await world.plan(await world.product(100))
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], 100)
    owner = await asyncpg.connect(world.database_url.replace("://fatura@", "://postgres@"))
    await owner.execute("ANALYZE customer; ANALYZE subscription")
    await owner.close()
    newcomer = await world.another()
    product = await newcomer.product(100)
    bulk = await newcomer.plan(product)
    async with world.deps.db.transaction(newcomer.account_id) as tx:
        await tx.execute(SUBSCRIBE_MANY, bulk["id"], 2_000)

    db = await connect(world.database_url, max_connections=2)
    try:
        async with db.transaction(newcomer.account_id) as tx:
            now = world.deps.clock() + timedelta(days=400)
            assert len(await generation.claim_due(tx, now=now, limit=CLAIMED)) == CLAIMED
            assert await tx.fetchval(ROWS_READ) <= 2 * CLAIMED
    finally:
        await db.close()


async def test_a_poll_beside_a_backlog_reads_one_subscription_of_each_account(world: World) -> None:
    """With MAX_DUE_ROWS or more due rows, a poll reads the accounts one by one. [D-5]"""
    plan = await world.plan(await world.product(100))
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], 3 * MAX_DUE_ROWS)
    for _ in range(IDLE):
        await world.another()

    async with world.deps.db.discovery() as tx:
        found = await discover(tx, "generation", real_now=world.deps.clock() + timedelta(days=400))
        (read,) = await tx.fetch(DISCOVERED)
    assert [account.account_id for account in found] == [world.account_id]
    assert read["rows"] <= MAX_DUE_ROWS + 10 * IDLE
