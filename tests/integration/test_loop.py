"""The loop of the lanes: fair to all accounts, and not ended by one lane's trouble."""

import asyncio
from itertools import pairwise
from uuid import UUID

from fatura.domain.account import Account
from fatura.usecases.failures import LockTimeoutError
from fatura.usecases.work import load_account
from fatura.workers.lanes import Lane
from fatura.workers.loop import Loop
from tests.world import World

BATCHES = 6


async def test_accounts_take_turns(world: World) -> None:
    """An account with endless work does not keep another waiting for more than one batch."""
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


async def test_a_lane_that_cannot_look_does_not_end_the_others(world: World) -> None:
    """A lock held by a migration costs a sweep, not the worker."""
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
