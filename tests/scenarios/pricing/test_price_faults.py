"""Workers that die, freeze or fail while prices are asked: each call counts once, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from fatura.bootstrap import real_clock
from fatura.usecases.pricing import price_pull
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.price_server import PriceServer, Reply, price_server
from tests.support.world import Json, World


@pytest.fixture
async def prices() -> AsyncIterator[PriceServer]:
    async with price_server() as server:
        yield server


async def enroll(world: World, prices: PriceServer, *paths: str) -> list[Json]:
    """Enroll a customer for each path, to a plan of one product priced there; generate, and return the invoices."""
    for path in paths:
        price = {"mode": "endpoint", "url": prices.url(path), "capCents": 2000}
        product = await world.made("/v1/products", {"name": "Usage", "pricing": price})
        await world.enroll(await world.plan(product))
    await world.run("generation")
    return await world.invoices()


async def pull(world: World, *, limit: int = 64) -> int:
    """Run one batch of calls."""
    account = await load_account(world.deps, world.account_id)
    return await price_pull.pull(world.deps, account, limit=limit)


async def reserve(world: World, *, by_hand: bool = False) -> price_pull.Reserved:
    """Commit to a call for every item, and make none."""
    account = await load_account(world.deps, world.account_id)
    items = [(row["invoice_id"], row["position"]) for row in await world.sql("SELECT * FROM price_pull")]
    return await in_transaction(
        world.deps, account, lambda work: price_pull._reserve(work, items, by_hand=by_hand)
    )


async def crash(world: World, prices: PriceServer, *, limit: int) -> None:
    """Have a worker die while so many calls are at the endpoint."""
    prices.asked, prices.held, prices.holds = [], [], True
    worker = asyncio.create_task(pull(world, limit=limit))
    await prices.wait_for_calls(limit)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    prices.holds = False
    for each in prices.held:
        each.set()
    prices.asked = []


async def let_leases_end(world: World, *, attempts: bool = True) -> None:
    """Let the dead worker's leases end; with `attempts`, its calls count as lost from now on."""
    await world.sql("UPDATE price_pull SET lease_until = now() WHERE lease_until IS NOT NULL")
    if attempts:
        await world.sql("UPDATE pricing_attempt SET open_until = now() WHERE outcome IS NULL")


@asynccontextmanager
async def invoices_held(world: World) -> AsyncGenerator[asyncpg.Connection]:
    """Hold the account's invoices, so that whoever wants them waits."""
    holder = await asyncpg.connect(world.database_url)
    try:
        await holder.execute(f"SET app.account = '{world.account_id}'")
        async with holder.transaction():
            await holder.execute("SELECT FROM invoice FOR UPDATE")
            yield holder
    finally:
        await holder.close()


async def wait_for_waiters(holder: asyncpg.Connection, count: int) -> None:
    """Wait until so many transactions wait for a lock."""
    async with asyncio.timeout(4):
        while await holder.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < count:  # noqa: ASYNC110 - they wait in the database
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("failed_before", [0, 11])
async def test_each_lost_call_counts_once(world: World, prices: PriceServer, failed_before: int) -> None:
    """A worker dies with more calls open than one batch settles; nothing is asked again before its call is settled.

    [D-29, spec 4.7 rule 3]
    """
    prices.answers(Reply(status=500), path="/a")
    await enroll(world, prices, "/a", "/a", "/a", "/a")
    await world.sql("UPDATE price_pull SET failures = $1::int, attempts = $1::int", failed_before)
    await crash(world, prices, limit=4)
    await let_leases_end(world)

    for _ in range(4):
        await pull(world, limit=2)

    assert [row["failures"] for row in await world.sql("SELECT failures FROM price_pull")] == [
        failed_before + 1
    ] * 4
    assert {row["outcome"] for row in await world.sql("SELECT outcome FROM pricing_attempt")} == {"timeout"}
    assert prices.asked == []
    assert len(await world.events("invoice.pricing_exhausted")) == (4 if failed_before == 11 else 0)
    assert len(await world.events("invoice.held")) == 4
    assert await world.broken() == []


async def test_a_call_waits_until_the_one_before_is_settled(world: World, prices: PriceServer) -> None:
    """The lease has ended, the call is not lost yet. [D-29]"""
    await enroll(world, prices, "/a")
    await crash(world, prices, limit=1)
    await let_leases_end(world, attempts=False)
    assert await pull(world) == 0
    assert prices.asked == []
    await let_leases_end(world)
    assert await pull(world) == 1
    await world.advance(days=1)
    assert [invoice["totalCents"] for invoice in await world.invoices()] == [1250]
    assert await world.broken() == []


async def test_postgresql_refuses_a_second_scheduled_call(world: World, prices: PriceServer) -> None:
    """Whatever the leases say; a call by hand may stand beside it. [D-32]"""
    await enroll(world, prices, "/a")
    for by_hand in (False, True, True):
        await reserve(world, by_hand=by_hand)
    with pytest.raises(asyncpg.UniqueViolationError, match="pricing_attempt_one_scheduled"):
        await reserve(world)


async def test_a_worker_that_stood_still_asks_nothing(world: World, prices: PriceServer) -> None:
    """It was frozen after its reservation; meanwhile its call was taken for lost, and the item closed by hand.

    [D-32, spec 4.7 rule 1]
    """
    (invoice,) = await enroll(world, prices, "/a")
    account = await load_account(world.deps, world.account_id)
    reserved = await reserve(world)
    detail = (await world.get(f"/v1/invoices/{invoice['id']}")).json
    await world.made(f"/v1/invoices/{invoice['id']}/items/{detail['items'][0]['id']}/value", {"amount": 7})

    for standing in (timedelta(seconds=21), timedelta(minutes=5)):
        late = replace(world.deps, clock=lambda standing=standing: real_clock() + standing)
        await price_pull._make(late, account, reserved)
    await price_pull._make(
        world.deps, account, replace(reserved, reserved_monotonic=reserved.reserved_monotonic - 21)
    )

    assert prices.asked == []
    await let_leases_end(world)
    assert await pull(world) == 1
    assert [each["totalCents"] for each in await world.invoices()] == [7]
    assert await world.broken() == []


async def test_what_waited_for_the_invoice_bears_the_time_it_happened(
    world: World, prices: PriceServer
) -> None:
    """A value entered and an answer recorded after a wait are told no earlier than what came before. [D-37]"""
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
    told = await world.events("invoice.ready", "invoice.paid")
    assert {event["data"]["invoice"]["id"] for event in told} == {first["id"], second["id"]}
    assert all(event["createdAt"] > "2033-11-21T15:00" for event in told)


async def test_an_answer_outlives_a_database_that_goes_away(world: World, prices: PriceServer) -> None:
    """The connection that records it is cut: the merchant is not asked a second time. [spec 4.7 rule 1]"""
    (invoice,) = await enroll(world, prices, "/a")
    async with invoices_held(world) as holder:
        worker = asyncio.create_task(pull(world))
        await wait_for_waiters(holder, 1)
        await holder.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted")
    assert await worker == 1
    (attempt,) = (await world.get(f"/v1/invoices/{invoice['id']}")).json["pricingAttempts"]
    assert attempt["outcome"] == "ok"
    assert len(prices.asked) == 1
    assert await world.broken() == []


POISON = (
    """
CREATE FUNCTION refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.url LIKE '%/poison' THEN RAISE EXCEPTION 'poison'; END IF;
    RETURN NEW;
END $$
""",
    "CREATE TRIGGER poison BEFORE UPDATE ON pricing_attempt FOR EACH ROW EXECUTE FUNCTION refuse_poison()",
)


async def poison(world: World) -> None:
    """Have the database refuse to settle the calls of one path."""
    for statement in POISON:
        await world.sql(statement)


async def test_a_call_that_cannot_be_settled_holds_up_no_other(world: World, prices: PriceServer) -> None:
    """Neither those lost with it nor those recorded with it, nor what is due next. [D-31]"""
    await enroll(world, prices, "/poison", "/a", "/b")
    await crash(world, prices, limit=3)
    await let_leases_end(world)
    await poison(world)
    await enroll(world, prices, "/c")

    await pull(world)

    assert sorted(asked.path for asked in prices.asked) == ["/c"]
    assert sorted([invoice["status"] for invoice in await world.invoices()]) == [
        "awaiting_value",
        "awaiting_value",
        "draft",
        "ready",
    ]
    await world.sql("UPDATE price_pull SET next_attempt_at = '2033-11-20' WHERE next_attempt_at IS NOT NULL")
    await pull(world)
    assert sorted(asked.path for asked in prices.asked) == ["/a", "/b", "/c"]
    await world.sql("DROP TRIGGER poison ON pricing_attempt")
    await let_leases_end(world)
    await world.advance(days=1)
    assert {invoice["totalCents"] for invoice in await world.invoices()} == {1250}
    assert await world.broken() == []


async def test_answers_that_end_together_stand_for_themselves(world: World, prices: PriceServer) -> None:
    """One cannot be recorded: the others are. [D-31]"""
    await enroll(world, prices, "/poison", "/a", "/b")
    await poison(world)
    account = await load_account(world.deps, world.account_id)
    ended: list[price_pull.EndedCall] = []
    reserved = await reserve(world)
    async with world.deps.merchants.session() as session:
        for call in reserved.calls:
            answer = await price_pull._ask(world.deps, session, reserved, call)
            assert answer is not None
            ended.append(answer)
    await price_pull._record(world.deps, account, ended, give_up_at=0)
    assert sorted([invoice["status"] for invoice in await world.invoices()]) == ["draft", "ready", "ready"]
