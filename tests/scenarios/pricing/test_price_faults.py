"""Workers die, are suspended or lose the database connection during price calls.

A call without a recorded answer counts as one failure.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from fatura.bootstrap import real_clock
from fatura.usecases.database_clock import DatabaseClock
from fatura.usecases.pricing import price_pull
from fatura.usecases.pricing.price_pull import CallBatch
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.populated import connected
from tests.support.price_server import PriceServer, Reply
from tests.support.resource_use import no_free_descriptors
from tests.support.sandbox_steps import pass_time
from tests.support.world import Json, World


async def enroll(world: World, prices: PriceServer, *paths: str) -> list[Json]:
    """Subscribe one customer per path to a product whose price endpoint has that path. Return the invoices."""
    for path in paths:
        price = {"mode": "endpoint", "url": prices.url(path), "capCents": 2000}
        product = await world.made("/v1/products", {"name": "Usage", "pricing": price})
        await world.enroll(await world.plan(product))
    await world.run("generation")
    return await world.invoices()


async def pull(world: World, *, limit: int = 64) -> int:
    """Make one batch of price calls."""
    account = await load_account(world.deps, world.account_id)
    return await price_pull.pull(world.deps, account, limit=limit)


async def reserve(world: World, *, by_hand: bool = False) -> CallBatch:
    """Commit the reservation of a price call for every item, without making the calls."""
    account = await load_account(world.deps, world.account_id)
    items = [(row["invoice_id"], row["position"]) for row in await world.sql("SELECT * FROM price_pull")]
    return await in_transaction(world.deps, account, price_pull.reserve, items, by_hand=by_hand)


async def crash(world: World, prices: PriceServer, *, limit: int) -> None:
    """Kill a worker while the endpoint is handling `limit` of the worker's calls."""
    prices.calls, prices.withheld, prices.withholds = [], [], True
    worker = asyncio.create_task(pull(world, limit=limit))
    await prices.wait_for_calls(limit)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    prices.withholds = False
    for each in prices.withheld:
        each.set()
    prices.calls = []


async def expire_leases(world: World, *, attempts: bool = True) -> None:
    """Expire the leases of the dead worker. If `attempts` is true, the worker's unfinished calls count as lost."""
    await world.sql("UPDATE price_pull SET lease_until = now() WHERE lease_until IS NOT NULL")
    if attempts:
        await world.sql("UPDATE pricing_attempt SET open_until = now() WHERE outcome IS NULL")


@asynccontextmanager
async def invoices_held(world: World) -> AsyncGenerator[asyncpg.Connection]:
    """Lock the account's invoices during the block, so that all other writers wait."""
    async with connected(world.database_url, world.account_id) as holder, holder.transaction():
        await holder.execute("SELECT FROM invoice FOR UPDATE")
        yield holder


async def wait_for_waiters(holder: asyncpg.Connection, count: int) -> None:
    """Wait until `count` transactions wait for a lock."""
    async with asyncio.timeout(4):
        while await holder.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < count:  # noqa: ASYNC110 - PostgreSQL offers no asyncio.Event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("failed_before", [0, 11])
async def test_each_lost_call_counts_once(world: World, prices: PriceServer, failed_before: int) -> None:
    """[D-29, spec 4.7 rule 3]"""
    prices.answers(Reply(status=500), path="/a")
    await enroll(world, prices, "/a", "/a", "/a", "/a")
    await world.sql("UPDATE price_pull SET failures = $1::int, attempts = $1::int", failed_before)
    await crash(world, prices, limit=4)
    await expire_leases(world)

    for _ in range(4):
        await pull(world, limit=2)

    assert [row["failures"] for row in await world.sql("SELECT failures FROM price_pull")] == [
        failed_before + 1
    ] * 4
    assert {row["outcome"] for row in await world.sql("SELECT outcome FROM pricing_attempt")} == {"timeout"}
    assert prices.calls == []
    assert len(await world.events("invoice.pricing_exhausted")) == (4 if failed_before == 11 else 0)
    assert len(await world.events("invoice.held")) == 4
    assert await world.broken() == []


async def test_an_item_is_not_called_again_before_its_last_call_is_settled(
    world: World, prices: PriceServer
) -> None:
    """[D-29]"""
    await enroll(world, prices, "/a")
    await crash(world, prices, limit=1)
    await expire_leases(world, attempts=False)
    assert await pull(world) == 0
    assert prices.calls == []
    await expire_leases(world)
    assert await pull(world) == 1
    await world.advance(days=1)
    assert [invoice["totalCents"] for invoice in await world.invoices()] == [1250]
    assert await world.broken() == []


async def test_postgresql_refuses_a_second_scheduled_call(world: World, prices: PriceServer) -> None:
    """A unique constraint allows one unfinished scheduled call per item, but several manual calls. [D-32]"""
    await enroll(world, prices, "/a")
    for by_hand in (False, True, True):
        await reserve(world, by_hand=by_hand)
    with pytest.raises(asyncpg.UniqueViolationError, match="pricing_attempt_one_scheduled"):
        await reserve(world)


async def test_a_suspended_worker_makes_no_call(world: World, prices: PriceServer) -> None:
    """The worker is suspended after it has reserved a call, and resumes too late to make that call.
    [D-32, spec 4.7 rule 1]
    """
    (invoice,) = await enroll(world, prices, "/a")
    account = await load_account(world.deps, world.account_id)
    batch = await reserve(world)
    detail = (await world.get(f"/v1/invoices/{invoice['id']}")).json
    await world.made(f"/v1/invoices/{invoice['id']}/items/{detail['items'][0]['id']}/value", {"amount": 7})

    for suspended in (timedelta(seconds=21), timedelta(minutes=5)):
        late = replace(world.deps, clock=DatabaseClock(lambda suspended=suspended: real_clock() + suspended))
        await price_pull._call_and_record(late, account, batch)
    await price_pull._call_and_record(
        world.deps, account, replace(batch, reserved_monotonic=batch.reserved_monotonic - 21)
    )

    assert prices.calls == []
    assert await world.sql("SELECT FROM pricing_attempt") == [], "the call was not made"
    await expire_leases(world)
    assert await pull(world) == 0
    assert [each["totalCents"] for each in await world.invoices()] == [7]
    assert await world.broken() == []


async def test_a_value_recorded_after_a_wait_is_dated_after_the_wait(
    world: World, prices: PriceServer
) -> None:
    """[D-37]"""
    first, second = await enroll(world, prices, "/a", "/a")
    detail = (await world.get(f"/v1/invoices/{first['id']}")).json
    async with invoices_held(world) as holder:
        path = f"/v1/invoices/{first['id']}/items/{detail['items'][0]['id']}/value"
        entered = asyncio.create_task(world.post(path, {"amount": 0}))
        await wait_for_waiters(holder, 1)
        worker = asyncio.create_task(pull(world))
        await wait_for_waiters(holder, 2)
        await world.sql("UPDATE account SET clock_offset = clock_offset + interval '1 day'")
    assert (await entered).json["paidAt"] > "2033-11-21T15:00"
    await worker
    emitted = await world.events("invoice.ready", "invoice.paid")
    assert {event["data"]["invoice"]["id"] for event in emitted} == {first["id"], second["id"]}
    assert all(event["createdAt"] > "2033-11-21T15:00" for event in emitted)


async def test_an_answer_is_recorded_after_the_connection_was_cut(world: World, prices: PriceServer) -> None:
    """[spec 4.7 rule 1]"""
    (invoice,) = await enroll(world, prices, "/a")
    async with invoices_held(world) as holder:
        worker = asyncio.create_task(pull(world))
        await wait_for_waiters(holder, 1)
        await holder.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted")
    assert await worker == 1
    (attempt,) = (await world.get(f"/v1/invoices/{invoice['id']}")).json["pricingAttempts"]
    assert attempt["outcome"] == "ok"
    assert len(prices.calls) == 1
    assert await world.broken() == []


POISON = (
    """
CREATE FUNCTION refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.outcome IS NOT NULL AND NEW.url LIKE '%/make_unsettleable' THEN RAISE EXCEPTION 'make_unsettleable'; END IF;
    RETURN NEW;
END $$
""",
    "CREATE TRIGGER make_unsettleable BEFORE UPDATE ON pricing_attempt FOR EACH ROW EXECUTE FUNCTION refuse_poison()",
)


async def make_unsettleable(world: World) -> None:
    """Make PostgreSQL refuse to store the result of a price call to the path `/make_unsettleable`."""
    for statement in POISON:
        await world.sql(statement)


async def test_a_call_that_cannot_be_settled_delays_no_other(world: World, prices: PriceServer) -> None:
    """[D-31]"""
    await enroll(world, prices, "/make_unsettleable", "/a", "/b")
    await crash(world, prices, limit=3)
    await expire_leases(world)
    await make_unsettleable(world)
    await enroll(world, prices, "/c")

    await pull(world)

    assert sorted(call.path for call in prices.calls) == ["/c"]
    assert sorted([invoice["status"] for invoice in await world.invoices()]) == [
        "awaiting_value",
        "awaiting_value",
        "draft",
        "ready",
    ]
    await world.sql("UPDATE price_pull SET next_attempt_at = '2033-11-20' WHERE next_attempt_at IS NOT NULL")
    await pull(world)
    assert sorted(call.path for call in prices.calls) == ["/a", "/b", "/c"]
    await world.sql("DROP TRIGGER make_unsettleable ON pricing_attempt")
    await expire_leases(world)
    await world.advance(days=1)
    assert {invoice["totalCents"] for invoice in await world.invoices()} == {1250}
    assert await world.broken() == []


async def test_one_unrecordable_answer_does_not_drop_the_others(world: World, prices: PriceServer) -> None:
    """[D-31]"""
    await enroll(world, prices, "/make_unsettleable", "/a", "/b")
    await make_unsettleable(world)
    account = await load_account(world.deps, world.account_id)
    batch = await reserve(world)
    async with world.deps.merchants.session(account) as session:
        answered = [await price_pull._call(world.deps, session, batch, call) for call in batch.calls]
    made = [(call, answer) for call, answer in answered if answer is not None]
    await price_pull._record(world.deps, account, made, give_up_at=0)
    assert sorted([invoice["status"] for invoice in await world.invoices()]) == ["draft", "ready", "ready"]


async def test_running_out_of_file_descriptors_is_no_failed_call(world: World, prices: PriceServer) -> None:
    """When descriptors are free again, the engine makes the call within seconds, still as attempt 1. [D-29, D-30]"""
    prices.answers({"amount": 5})
    [invoice] = await enroll(world, prices, "/price")
    path = f"/v1/invoices/{invoice['id']}"
    with no_free_descriptors():
        assert await pull(world) == 0
        refused = await world.post(f"{path}/retry-pricing")
    assert (refused.status, refused.type) == (503, "engine.unavailable")
    shown = (await world.get(path)).json
    assert (shown["status"], shown["pricingAttempts"]) == ("draft", [])
    assert await world.sql("SELECT FROM pricing_attempt") == []
    assert await world.broken() == []

    await pass_time(world, seconds=20)

    shown = (await world.get(path)).json
    assert [(each["attempt"], each["outcome"]) for each in shown["pricingAttempts"]] == [(1, "ok")]
    assert len(prices.calls) == 1
    assert await world.broken() == []
