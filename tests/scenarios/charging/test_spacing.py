"""If several invoices of one subscription wait, Fatura issues them at least 24 hours apart (D-57)."""

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.support.reissue_steps import ask
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    fail_for,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
    skip_days,
    table_held,
    until_waiting,
)
from tests.support.unreadable import make_unreadable, mend_names
from tests.support.world import Json, World, columns


async def held_cycles(world: World, count: int) -> list[Json]:
    """Return the held invoices of the first `count` cycles of one subscription."""
    await world.set_up_gateway(behaviour="never_pay")
    await world.enroll(await world.plan(await world.variable_product()))
    await world.advance(days=31 * count - 25)
    held = await world.invoices()
    assert [each["status"] for each in held] == ["awaiting_value"] * count
    return held


async def release(world: World, invoice: Json) -> None:
    [item] = (await read(world, invoice))["items"]
    await world.made(f"/v1/invoices/{invoice['id']}/items/{item['id']}/value", {"amount": 1000})


async def issued_at(world: World, invoice: Json) -> datetime | None:
    at = (await read(world, invoice))["issuedAt"]
    return None if at is None else datetime.fromisoformat(at)


@pytest.mark.faults
async def test_released_cycles_are_issued_a_day_apart(world: World) -> None:
    """[D-57]"""
    held = await held_cycles(world, 3)
    for invoice in reversed(held):
        await release(world, invoice)
    await world.run("issuance")
    assert [(await read(world, each))["status"] for each in held] == ["issued", "ready", "ready"]

    await pass_time(world, days=4)

    instants = [await issued_at(world, each) for each in held]
    first, second, third = [each for each in instants if each is not None]
    assert timedelta(hours=24) <= second - first < timedelta(hours=25)
    assert timedelta(hours=24) <= third - second < timedelta(hours=25)
    assert await world.broken() == []


async def test_cycles_reserved_one_by_one_are_issued_a_day_apart(world: World) -> None:
    """Another subscription's invoice cannot be read, so the engine reserves the invoices one by one. [D-57, D-186]"""
    held = await held_cycles(world, 3)
    failing = await ready_invoice(world)
    await make_unreadable(world, failing)
    for invoice in reversed(held):
        await release(world, invoice)

    await world.run("issuance")

    assert [(await read(world, each))["status"] for each in held] == ["issued", "ready", "ready"]
    assert len(await charges(world)) == 1
    await mend_names(world)
    assert await world.broken() == []


async def test_a_cycle_released_after_another_one_waits(world: World) -> None:
    """The invoice of cycle 1 gets its value after the invoice of cycle 2 was issued. [D-57]"""
    earlier, later = await held_cycles(world, 2)
    await release(world, later)
    await world.run("issuance")
    await pass_time(world, hours=3)
    await release(world, earlier)
    await world.run("issuance")
    assert (await read(world, earlier))["status"] == "ready"

    await pass_time(world, hours=22)

    first, second = await issued_at(world, later), await issued_at(world, earlier)
    assert first is not None
    assert second is not None
    assert timedelta(hours=24) <= second - first < timedelta(hours=25)
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.parametrize("retried", [False, True])
async def test_concurrent_workers_issue_one_cycle_a_day(world: World, *, retried: bool) -> None:
    """A worker or a merchant's retry is issuing the invoice of cycle 2 when another worker tries to issue that of
    cycle 1. [D-57, D-34 retry]
    """
    earlier, later = await held_cycles(world, 2)
    await release(world, later)
    async with table_held(world, "charge"):
        if retried:
            first = asyncio.create_task(world.post(f"/v1/invoices/{later['id']}/retry-issuance"))
        else:
            first = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        await release(world, earlier)
        second = asyncio.create_task(world.run("issuance"))
        await until_waiting(world, statements=2)
    await asyncio.gather(first, second)
    assert [(await read(world, each))["status"] for each in (earlier, later)] == ["ready", "issued"]

    await pass_time(world, hours=25)
    assert (await read(world, earlier))["status"] == "issued"
    assert await world.broken() == []


async def test_a_cycle_whose_request_failed_waits_for_another_one(world: World) -> None:
    """The gateway answers the request for cycle 2 with 429. The connection becomes inactive, so both invoices wait.

    When the connection is active again, cycle 1 is issued first. [D-57, D-34]
    """
    earlier, later = await held_cycles(world, 2)
    await queue_fault(world, "create_charge", "rate_limited")
    await release(world, later)
    await world.run("issuance")
    await patch_connection(world, active=False)
    await pass_time(world, hours=25)
    await release(world, earlier)
    await world.run("issuance")
    await patch_connection(world, active=True)

    await world.run("issuance")

    assert [(await read(world, each))["status"] for each in (earlier, later)] == ["issued", "ready"]
    await pass_time(world, hours=25)
    first, second = await issued_at(world, earlier), await issued_at(world, later)
    assert first is not None
    assert second is not None
    assert timedelta(hours=24) <= second - first < timedelta(hours=25)
    assert await world.broken() == []


async def test_a_person_need_not_wait(world: World) -> None:
    """[D-57, D-34 retry]"""
    earlier, later = await held_cycles(world, 2)
    for invoice in (earlier, later):
        await release(world, invoice)
    await world.run("issuance")
    answer = await world.post(f"/v1/invoices/{later['id']}/retry-issuance")
    assert answer.json["status"] == "issued"


async def test_other_subscriptions_do_not_wait(world: World) -> None:
    """[D-57]"""
    plan = await world.plan()
    for _ in range(3):
        await world.enroll(plan)
    await world.run("generation", "issuance")
    assert {each["status"] for each in await world.invoices()} == {"issued"}


async def moved_before_second_cycle(world: World, fault: str | None = None) -> Json:
    """Return a subscription whose first invoice waits at a broken connection, and whose second invoice was generated
    after a move to a working connection.

    Calls at the broken connection end with `fault`. If `fault` is None, the broken connection is inactive.
    """
    await world.set_up_gateway(behaviour="never_pay")
    old = await connection_id(world)
    subscription = await world.enroll(await world.plan(), gatewayConnectionId=old)
    if fault is None:
        await patch_connection(world, active=False)
    else:
        await fail_for(world, "all", fault, seconds=3600)
    new = (await world.connect(behaviour="never_pay"))["connectionId"]
    await world.run("generation", "issuance", "gateway_probe")
    await world.made(f"/v1/integration/gateways/{old}/move", {"toConnectionId": new})
    await skip_days(world, 27)
    return subscription


@pytest.mark.faults
@pytest.mark.parametrize("fault", [None, "timeout_after"])
async def test_a_cycle_at_a_broken_connection_delays_no_cycle_elsewhere(
    world: World, fault: str | None
) -> None:
    """After the move, the invoice of the earlier cycle stays at the broken connection. [D-57, D-59 move]"""
    subscription = await moved_before_second_cycle(world, fault)
    await world.advance(days=2)  # enough time for the engine to issue the later invoice
    await skip_days(world, 3)
    earlier, later = await world.invoices(subscription)
    assert [(await read(world, each))["status"] for each in (earlier, later)] == ["ready", "overdue"]
    assert await world.broken() == []


@pytest.mark.faults
async def test_a_cycle_that_is_due_with_an_earlier_one_is_retried_within_hours(world: World) -> None:
    """The workers run once a day, so both invoices are due in one run. The earlier invoice cannot be charged.
    [D-57, D-59 move]
    """
    subscription = await moved_before_second_cycle(world)
    await skip_days(world, 5)
    earlier, later = await world.invoices(subscription)
    assert [(await read(world, each))["status"] for each in (earlier, later)] == ["ready", "ready"]

    await pass_time(world, hours=3)

    assert [(await read(world, each))["status"] for each in (earlier, later)] == ["ready", "issued"]
    assert await world.broken() == []


@pytest.mark.faults
async def test_a_probe_keeps_the_distance_too(world: World) -> None:
    """The broken connection recovers a few hours after the later invoice was issued. [D-57, D-55 failing]"""
    await world.set_up_gateway(behaviour="never_pay")
    old = await connection_id(world)
    subscription = await world.enroll(await world.plan(), gatewayConnectionId=old)
    await fail_for(world, "all", "rate_limited", seconds=3600)
    new = (await world.connect(behaviour="never_pay"))["connectionId"]
    await world.run("generation", "issuance", "gateway_probe")
    await world.made(f"/v1/integration/gateways/{old}/move", {"toConnectionId": new})
    await skip_days(world, 27)
    earlier, later = await world.invoices(subscription)
    while (await read(world, later))["status"] == "ready":
        await pass_time(world, hours=1)
    await world.delete(f"/v1/sandbox/faults?connectionId={old}")

    await pass_time(world, hours=30)

    first, second = await issued_at(world, later), await issued_at(world, earlier)
    assert first is not None
    assert second is not None
    assert timedelta(hours=24) <= second - first < timedelta(hours=25)
    assert await world.broken() == []


@pytest.mark.faults
async def test_daily_reissues_do_not_postpone_the_next_cycle(world: World):
    """[D-57, D-51]"""
    await world.set_up_gateway(behaviour="never_pay")
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=10)
    await world.advance("2035-01-08")
    [first] = await world.invoices(subscription)
    await world.advance("2035-02-06")
    for _ in range(4):
        assert (await ask(world, first)).status == 200
        await pass_time(world, hours=23)

    assert ("2", "issued") in columns(await world.invoices(subscription), "cycle", "status")


async def test_a_retry_after_a_refused_charge_postpones_the_next_cycle(world: World) -> None:
    """The gateway refuses the first charge of cycle 1, and accepts the second. Then cycle 2 waits for 24 hours.
    [D-57, D-113]
    """
    earlier, later = await held_cycles(world, 2)
    await queue_fault(world, "create_charge", "rejected")
    for invoice in (earlier, later):
        await release(world, invoice)
    await world.run("issuance")
    answer = await world.post(f"/v1/invoices/{earlier['id']}/retry-issuance")
    assert answer.json["status"] == "issued"

    await pass_time(world, hours=20)
    assert (await read(world, later))["status"] == "ready"

    await pass_time(world, hours=5)
    assert (await read(world, later))["status"] == "issued"
    assert await world.broken() == []
