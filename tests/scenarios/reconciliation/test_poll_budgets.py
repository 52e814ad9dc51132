"""A connection's budget limits its polls, and delays no polls of other connections (D-55)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fatura.usecases.reconciliation import polling, unmatched_charges
from fatura.usecases.transaction import load_account
from tests.support.reissue_steps import ask
from tests.support.sandbox_steps import (
    connection_id,
    issued_invoice,
    pay_silently,
    read,
    row_held,
    until_waiting,
)
from tests.support.webhook_steps import budget_free, issued_with_webhooks, paid_unnoticed
from tests.support.world import Json, World, eventually

ALL_DUE = "UPDATE invoice SET next_attempt_at = created_at"
KNOWN_CHARGE_UNMATCHED = """
    INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, next_look_at)
    SELECT v.account_id, v.connection_id, v.gateway_invoice_id, v.created_at, v.created_at FROM invoice v
"""
VERSIONS = "SELECT invoice_id, xmin::text FROM invoice ORDER BY invoice_id"


@pytest.fixture
async def issued(world: World) -> Json:
    return await issued_with_webhooks(world)


async def reconcile(world: World, *, limit: int = 64) -> int:
    """Run one batch of polls, and return how many invoices it claimed."""
    return await polling.reconcile(world.deps, await load_account(world.deps, world.account_id), limit=limit)


async def of_another_connection(world: World, *, count: int) -> list[Json]:
    """Return `count` issued invoices of another connection."""
    connection, plan = (await world.connect(behaviour="never_pay"))["connectionId"], await world.plan()
    subscriptions = [await world.enroll(plan, gatewayConnectionId=connection) for _ in range(count)]
    await world.run("generation", "issuance")
    return [(await world.invoices(each))[0] for each in subscriptions]


async def statuses(world: World, invoices: Sequence[Json]) -> list[str]:
    return [(await read(world, each))["status"] for each in invoices]


async def test_polls_that_the_budget_does_not_allow_change_no_row(world: World, issued: Json) -> None:
    """[D-55 budget]"""
    invoices = [issued, *[await issued_invoice(world) for _ in range(4)]]
    await world.sql(ALL_DUE)
    await world.sql("UPDATE connection_health SET polls_per_minute = 120")
    before = await world.sql(VERSIONS)

    assert await reconcile(world) == 2

    after = await world.sql(VERSIONS)
    assert len(set(before) & set(after)) == len(invoices) - 2
    await world.sql("UPDATE connection_health SET polls_from = polls_from + interval '1 minute'")
    assert await world.run("reconciliation") == 0
    assert await world.sql(VERSIONS) == after
    for made in (2, 1, 0):
        await budget_free(world)
        assert await reconcile(world) == made


async def test_a_spent_budget_does_not_stop_the_polls_of_another_connection(
    world: World, issued: Json
) -> None:
    """[D-35 polling, D-55 budget]"""
    backlog = [issued, *[await issued_invoice(world) for _ in range(4)]]
    others = await of_another_connection(world, count=2)
    await pay_silently(world)
    await world.sql(ALL_DUE)
    await world.sql(
        "UPDATE connection_health SET polls_per_minute = 60 WHERE connection_id = $1::text::uuid",
        await connection_id(world),
    )

    assert await reconcile(world, limit=4) == 3

    assert await statuses(world, backlog) == ["paid", "issued", "issued", "issued", "issued"]
    assert await statuses(world, others) == ["paid", "paid"]


async def test_connections_are_polled_in_turn(world: World, issued: Json) -> None:
    """No budget limits the polls. The polls of the first connection have been due longer. [D-35 polling]"""
    for _ in range(4):
        await issued_invoice(world)
    others = await of_another_connection(world, count=2)
    await pay_silently(world)
    await world.sql(ALL_DUE)

    assert await reconcile(world, limit=4) == 4

    assert (await read(world, issued))["status"] == "paid"
    assert await statuses(world, others) == ["paid", "paid"]


async def test_a_poll_stays_due_if_the_charges_of_another_invoice_use_up_the_budget(
    world: World, issued: Json
) -> None:
    """The budget allows two polls, and the first invoice has two charges. [D-176, D-55 budget]"""
    assert (await ask(world, issued)).status == 200
    await world.run("issuance")
    second = await issued_invoice(world)
    await paid_unnoticed(world, second)
    await world.sql(ALL_DUE)
    await world.sql("UPDATE connection_health SET polls_per_minute = 120, polls_from = NULL")

    await reconcile(world)

    waiting = (
        "SELECT invoice_id::text FROM invoice WHERE next_attempt_at = created_at AND lease_until IS NULL"
    )
    assert [row["invoice_id"] for row in await world.sql(waiting)] == [second["id"]]
    await budget_free(world)
    await reconcile(world)
    assert (await read(world, second))["status"] == "paid"


async def test_the_workers_continue_when_the_budget_is_free_again(world: World, issued: Json) -> None:
    """[D-55 budget]"""
    await world.sql(ALL_DUE)
    await world.sql("UPDATE connection_health SET polls_per_minute = 60")
    notified: list[str] = []
    account = await load_account(world.deps, world.account_id)

    assert await polling.reconcile(replace(world.deps, notify=notified.append), account, limit=64) == 1

    assert notified == []
    await eventually(lambda: notified == ["reconciliation"])
    assert await statuses(world, [issued]) == ["issued"]


async def test_a_budget_may_be_below_one_poll_per_second(world: World, issued: Json) -> None:
    """One charge is polled, and the next one four seconds later. [D-55 budget, D-261]"""
    second = await issued_invoice(world)
    await world.sql(ALL_DUE)
    await world.sql("UPDATE connection_health SET polls_per_minute = 15, polls_from = NULL")
    before = datetime.now(UTC)

    await reconcile(world)

    waiting = await world.sql(
        "SELECT FROM invoice WHERE next_attempt_at = created_at AND lease_until IS NULL"
    )
    assert (len(waiting), await statuses(world, [issued, second])) == (1, ["issued", "issued"])
    [stored] = await world.sql("SELECT polls_from FROM connection_health")
    assert timedelta(seconds=3.9) < stored["polls_from"] - before < timedelta(seconds=30)


async def test_a_look_does_not_lock_the_budget_while_it_waits_for_an_invoice(
    world: World, issued: Json
) -> None:
    """To avoid deadlocks, no transaction waits for an invoice while it holds the lock of the budget.

    [D-162, D-35 polling]
    """
    await world.sql(KNOWN_CHARGE_UNMATCHED)
    await world.sql("UPDATE connection_health SET polls_per_minute = 60")
    account = await load_account(world.deps, world.account_id)
    async with row_held(world, "invoice", invoice_id=issued["id"]):
        looking = asyncio.create_task(unmatched_charges.look(world.deps, account, limit=64))
        await until_waiting(world)
        assert len(await world.sql("SELECT FROM connection_health FOR NO KEY UPDATE SKIP LOCKED")) == 1
    assert await looking == 1
    assert await world.sql("SELECT FROM unmatched_charge") == []
    assert len(await world.sql("SELECT FROM invoice WHERE polls_first")) == 1


async def test_polls_that_wait_for_the_budget_are_not_late(world: World, issued: Json) -> None:
    """`fatura check` reports a late poll only if the budget would have allowed the poll. [D-55 budget]"""
    await world.sql("UPDATE invoice SET next_attempt_at = '2000-01-01'")
    await world.sql(
        "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '1 second'"
    )
    assert await world.broken() == []
    await world.sql("UPDATE connection_health SET polls_from = now() - interval '1 hour'")
    assert await world.broken() == ["due_work_is_claimed_in_an_hour"]
    assert (await read(world, issued))["status"] == "issued"
