"""An account whose gateway hangs delays neither the charges nor the polls of other accounts (D-55)."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES
from fatura.workers.loop import Loop
from tests.support.sandbox_steps import charges, fail_for, pass_time, queue_fault, stored_charges
from tests.support.world import Json, Merchant, World, eventually

HANGING = 12
FAR_TOO_LONG = 3600


@asynccontextmanager
async def working(deps: Deps) -> AsyncGenerator[None]:
    """Run a worker in this process. The calls that hang are canceled at the end."""
    stop = asyncio.Event()
    running = asyncio.create_task(Loop(deps, LANES).run(stop))
    try:
        yield
    finally:
        running.cancel()
        calling = [
            each
            for each in asyncio.all_tasks()
            if each.get_name().startswith(("issuance ", "reconciliation "))
        ]
        for each in calling:
            each.cancel()
        await asyncio.wait([running, *calling])


async def enrolled(merchant: Merchant) -> Json:
    await merchant.set_up_gateway(behaviour="never_pay")
    return await merchant.enroll(await merchant.plan())


async def eventually_open(calls: int) -> None:
    """Wait until at least `calls` tasks of the issuance and reconciliation lanes run."""

    def are_open() -> bool:
        names = [task.get_name() for task in asyncio.all_tasks()]
        return sum(name.startswith(("issuance ", "reconciliation ")) for name in names) >= calls

    await eventually(are_open, seconds=15)


@pytest.mark.faults
async def test_hanging_gateways_do_not_delay_another_account(world: World) -> None:
    """[D-55 fair]"""
    others = [await world.another() for _ in range(HANGING)]
    for each in others:
        await enrolled(each)
        await fail_for(each, "create_charge", "hang", seconds=FAR_TOO_LONG)
    async with working(world.deps):
        await eventually_open(HANGING)
        began = time.monotonic()
        await enrolled(world)
        while [each["status"] for each in await world.invoices()] != ["issued"]:
            assert time.monotonic() - began < 10, "the account waits for the hanging ones"
            await asyncio.sleep(0.05)


@pytest.mark.faults
async def test_hanging_polls_do_not_delay_another_account(world: World) -> None:
    """[D-55 fair]"""
    others = [await world.another() for _ in range(HANGING)]
    for each in (*others, world):
        await enrolled(each)
    await world.run("generation", "issuance")
    (mine,) = await world.invoices()
    for each in others:
        await fail_for(each, "get_charge", "hang", seconds=FAR_TOO_LONG)
    async with working(world.deps):
        for each in others:
            await each.set_up_gateway(behaviour="refuse")
        await eventually_open(HANGING)
        began = time.monotonic()
        await world.set_up_gateway(behaviour="pay_at_once")
        while (await world.get(f"/v1/invoices/{mine['id']}")).json["status"] != "paid":
            assert time.monotonic() - began < 10, "the account waits for the hanging ones"
            await asyncio.sleep(0.05)


@pytest.mark.faults
async def test_a_call_that_hangs_ends_at_its_deadline_also_when_the_worker_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call's outcome is recorded as unknown. Later, the invoice gets exactly one charge. [D-61 faults, D-33]"""
    monkeypatch.setattr("fatura.gateways.port.CALL_TIMEOUT_SECONDS", 2)
    await enrolled(world)
    await queue_fault(world, "create_charge", "hang")
    stop = asyncio.Event()
    running = asyncio.create_task(Loop(world.deps, LANES).run(stop))
    async with asyncio.timeout(15):
        while [each["stage"] for each in await stored_charges(world)] != ["sending"]:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
        stop.set()
        await running

    (charge,) = await stored_charges(world)
    assert charge["stage"] == "unknown"
    assert await charges(world) == []
    await pass_time(world, hours=1)
    assert [each["status"] for each in await world.invoices()] == ["issued"]
    assert len(await charges(world)) == 1
    assert await world.broken() == []
