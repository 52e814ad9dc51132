"""While lanes bill an account without a pause, its keys can change, and operators can suspend it (ADR 0019)."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from fatura.store import suspension as stored_suspension
from fatura.store.db import Tx
from fatura.store.restore import frozen_accounts
from fatura.usecases.accounts import suspension
from fatura.usecases.restore import comparison
from tests.support.operator import OPERATOR
from tests.support.world import World

BATCH_SECONDS = 0.5
LANES = 3
SOON_SECONDS = 2
May = Callable[[Tx], Awaitable[bool]]


@asynccontextmanager
async def busy(world: World, may: May, *, lanes: int = LANES) -> AsyncGenerator[Counter[str]]:
    """Run batches that overlap, so that a batch always holds the lock that `may` takes.

    Yield the numbers of running and of ended batches.
    """
    counts = Counter[str]()

    async def run(number: int) -> None:
        await asyncio.sleep(number * BATCH_SECONDS / lanes)
        while True:
            async with world.deps.db.transaction(world.account_id) as tx:
                if await may(tx):
                    counts["running"] += 1
                    await asyncio.sleep(BATCH_SECONDS)
                    counts["running"] -= 1
                    counts["ended"] += 1
            await asyncio.sleep(0.001)

    tasks = [asyncio.create_task(run(number)) for number in range(lanes)]
    try:
        await asyncio.sleep(BATCH_SECONDS)
        assert counts["running"]
        yield counts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def suspend(world: World) -> None:
    await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)


@pytest.mark.parametrize(
    "may", [frozen_accounts.may_charge, frozen_accounts.may_record, stored_suspension.may_work]
)
async def test_credentials_change_while_the_account_is_billed(world: World, may: May) -> None:
    """[D-64 scopes, D-40, D-43]"""
    async with busy(world, may), asyncio.timeout(SOON_SECONDS):
        made = await world.made("/v1/integration/api-keys", {"name": "x", "scopes": ["read"]})
        assert (await world.delete(f"/v1/integration/api-keys/{made['id']}")).status == 204
        await world.made("/v1/integration/secret/rotate", {})
        await world.connect()


@pytest.mark.parametrize("may", [frozen_accounts.may_charge, stored_suspension.may_work])
async def test_a_suspension_waits_for_the_running_batches_only(world: World, may: May) -> None:
    """[D-242]"""
    async with busy(world, may) as counts:
        async with asyncio.timeout(SOON_SECONDS):
            await suspend(world)
        assert counts["running"] == 0
        ended = counts["ended"]
        await asyncio.sleep(BATCH_SECONDS)
        assert counts["ended"] == ended

        assert await suspension.resume(world.deps, world.account_id, asked_by=OPERATOR)
        async with asyncio.timeout(SOON_SECONDS):
            while not counts["running"]:  # noqa: ASYNC110 - the batches count themselves
                await asyncio.sleep(BATCH_SECONDS)


async def test_a_suspension_does_not_wait_for_polls(world: World) -> None:
    """[D-242]"""
    async with busy(world, frozen_accounts.may_record) as counts, asyncio.timeout(SOON_SECONDS):
        await suspend(world)
        assert counts["running"]


@pytest.mark.parametrize("may", [frozen_accounts.may_charge, frozen_accounts.may_record])
async def test_a_restore_waits_for_the_running_batches_only(world: World, may: May) -> None:
    """[D-123]"""
    async with busy(world, may) as counts, asyncio.timeout(SOON_SECONDS):
        await comparison.freeze(world.deps, world.account_id)
        assert counts["running"] == 0


async def test_an_interrupted_suspension_can_be_repeated(world: World) -> None:
    """The first command stores the suspension, and dies while it waits for a batch.

    The second command waits until no batch runs. [D-242]
    """
    async with busy(world, frozen_accounts.may_charge) as counts:
        with suppress(TimeoutError):
            async with asyncio.timeout(BATCH_SECONDS / 2):
                await suspend(world)
        assert counts["running"]
        assert await world.sql("SELECT 1 FROM account WHERE suspended_at IS NOT NULL")

        async with asyncio.timeout(SOON_SECONDS):
            await suspend(world)

        assert counts["running"] == 0
    entries = await world.sql("SELECT 1 FROM audit_entry WHERE action = 'account.suspend'")
    assert len(entries) == 1


@pytest.mark.parametrize("may", [frozen_accounts.may_charge, stored_suspension.may_work])
async def test_a_batch_sees_a_suspension_that_was_stored_before_its_lock(world: World, may: May) -> None:
    """A batch waits while a transaction stores a suspension. Then the batch may not run. [D-242]"""
    async with world.deps.db.transaction(world.account_id) as holding:
        await holding.execute("SELECT FROM account_gate g WHERE g.account_id = $1 FOR UPDATE")

        async def batch() -> bool:
            async with world.deps.db.transaction(world.account_id) as tx:
                return await may(tx)

        asked = asyncio.create_task(batch())
        await asyncio.sleep(0.3)
        assert not asked.done()
        await holding.execute("UPDATE account a SET suspended_at = now() WHERE a.account_id = $1")
    assert not await asked
