"""The worker's loop is fair to all accounts, and an error in one lane does not end the other lanes."""

import asyncio
import time
from datetime import timedelta
from itertools import pairwise
from uuid import UUID, uuid4

from fatura.domain.account import Account
from fatura.domain.credentials import Mode
from fatura.store.db import LockTimeoutError
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import load_account
from fatura.workers.lanes import Lane
from fatura.workers.loop import IDLE_PAUSE_SECONDS, Loop, run_batch
from tests.support.sandbox_steps import table_held
from tests.support.world import LANE, World

BATCHES = 6


async def test_accounts_take_turns(world: World) -> None:
    other = await world.another()
    stop = asyncio.Event()
    served: list[UUID] = []

    async def due(deps) -> list[Account]:
        return [await load_account(deps, each.account_id) for each in (world, other)]

    async def run(_deps, account) -> int:
        served.append(account.account_id)
        if len(served) >= BATCHES:
            stop.set()
        return 1

    await Loop(world.deps, [Lane("endless", due, run, batches_at_once=1)]).run(stop)

    assert all(one != next_one for one, next_one in pairwise(served))


async def test_batches_of_one_account_overlap(world: World) -> None:
    """After a batch that found work, up to `batches_an_account` batches of the account run concurrently."""
    stop = asyncio.Event()
    running = done = 0
    at_once: list[int] = []

    async def due(deps) -> list[Account]:
        return [await load_account(deps, world.account_id)]

    async def run(_deps, _account) -> int:
        nonlocal running, done
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.05)
        running -= 1
        done += 1
        if done >= BATCHES:
            stop.set()
        return 1

    await Loop(world.deps, [Lane("endless", due, run, batches_at_once=3, batches_an_account=2)]).run(stop)

    assert at_once[0] == 1
    assert max(at_once) == 2


async def test_an_account_without_work_gets_one_batch_at_a_time(world: World) -> None:
    """An account can stay due without work, for example while another worker has locked its rows."""
    stop = asyncio.Event()
    served = 0

    async def due(deps) -> list[Account]:
        return [await load_account(deps, world.account_id)]

    async def run(_deps, _account) -> int:
        nonlocal served
        served += 1
        return 0

    loop = Loop(world.deps, [Lane("endless", due, run, batches_at_once=3, batches_an_account=2)])
    running = asyncio.create_task(loop.run(stop))
    await asyncio.sleep(0.5)
    stop.set()
    loop.notify("endless")
    await running

    assert served == 1


async def test_workers_visit_accounts_in_different_orders(world: World) -> None:
    """If all workers visited the accounts in the same order, they would compete for each account. [D-39 fair]"""
    accounts = [Account(uuid4(), Mode.LIVE, "BRL", timedelta(0)) for _ in range(16)]

    async def turns() -> list[Account]:
        stop = asyncio.Event()
        served: list[Account] = []

        async def due(_deps) -> list[Account]:
            return accounts

        async def run(_deps, account) -> int:
            served.append(account)
            if len(served) == 2 * len(accounts):
                stop.set()
            return 1

        await Loop(world.deps, [Lane("endless", due, run, batches_at_once=1)]).run(stop)
        return served

    one, other = await turns(), await turns()

    assert one[:16] == one[16:32]
    assert set(one[:16]) == set(other[:16]) == set(accounts)
    assert one[:16] != other[:16]


async def test_notifications_without_work_cause_few_polls(world: World) -> None:
    """All workers get each notification. A lane pauses after an empty poll, even if it is notified. [D-5]"""
    stop = asyncio.Event()
    looked = hinted = 0

    async def due(_deps) -> list[Account]:
        nonlocal looked
        looked += 1
        return []

    async def run(_deps, _account) -> int:
        raise AssertionError

    loop = Loop(world.deps, [Lane("idle", due, run, batches_at_once=1)])
    running = asyncio.create_task(loop.run(stop))
    began = time.monotonic()
    while time.monotonic() - began < 10 * IDLE_PAUSE_SECONDS:
        loop.notify("idle")
        hinted += 1
        await asyncio.sleep(0)
    stop.set()
    await running

    assert hinted > 100
    assert 2 <= looked <= (time.monotonic() - began) / IDLE_PAUSE_SECONDS + 1


async def test_a_lane_that_cannot_poll_does_not_end_the_others(world: World) -> None:
    stop = asyncio.Event()
    looked: list[int] = []

    async def failing(_deps) -> list[Account]:
        looked.append(1)
        raise LockTimeoutError

    async def due(deps) -> list[Account]:
        return [await load_account(deps, world.account_id)]

    async def run(_deps, _account) -> int:
        if looked:
            stop.set()
        return 0

    loop = Loop(
        world.deps,
        [Lane("failing", failing, run, batches_at_once=1), Lane("sound", due, run, batches_at_once=1)],
    )
    async with asyncio.timeout(20):
        await loop.run(stop)


async def test_a_lane_polls_while_its_batches_hold_all_transactions(world: World) -> None:
    """If a poll waited for the batches, the wait would count as part of the poll and lengthen the next pause."""
    stop, looked = asyncio.Event(), list[float]()

    async def due(deps: Deps) -> list[Account]:
        async with deps.db.discovery():
            looked.append(time.monotonic())
        return [world_account] if len(looked) == 1 else []

    async def run(deps: Deps, account: Account) -> int:
        async with deps.db.transaction(account.account_id):
            await asyncio.sleep(3)
        return 0

    world_account = await load_account(world.deps, world.account_id)
    loop = Loop(world.deps, [Lane("slow", due, run, batches_at_once=2, transactions_at_once=1)])
    running = asyncio.create_task(loop.run(stop))
    await asyncio.sleep(3.5)
    stop.set()
    await running

    assert len(looked) >= 3
    assert max(after - before for before, after in pairwise(looked)) < 2


async def test_a_batch_that_the_database_ends_is_followed_by_a_smaller_one(world: World) -> None:
    """If the next batch were not smaller, the database's time limit would end that batch too."""
    account = await load_account(world.deps, world.account_id)
    await world.enroll(await world.plan())
    before = world.deps.generation_batch.current

    async with table_held(world, "invoice"):
        assert await run_batch(world.deps, LANE["generation"], account) == 0

    assert world.deps.generation_batch.current == before // 2
    assert await run_batch(world.deps, LANE["generation"], account) == 1
