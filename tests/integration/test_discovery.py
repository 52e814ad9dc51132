"""Discovery finds every account with due work, whether or not its test clock was moved.

A large backlog of one account hides no other account.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import LiteralString
from uuid import UUID

import asyncpg
import pytest

from fatura.store.discovery import DISCOVER_DUE, MAX_DUE_ROWS
from fatura.usecases.accounts import suspension
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.databases import as_superuser
from tests.support.operator import OPERATOR
from tests.support.push_steps import register
from tests.support.receiver import Receiver, always
from tests.support.world import LANE, Json, Merchant, World

pytestmark = pytest.mark.timeout(120)


_RUNNING: Mapping[str, LiteralString] = {
    "propagation": """
        INSERT INTO propagation (account_id, propagation_id, plan_id, plan_version_id, version, status, moved, skipped,
            cents_before, cents_after, created_at, worked_at)
        SELECT $1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 2, 'running', 0, 0, 0, 0, $2, $2
        FROM generate_series(1, $3::int4)
    """,
    "move": """
        INSERT INTO connection_move (account_id, connection_move_id, from_connection_id, to_connection_id, status,
            moved, skipped, created_at, worked_at)
        SELECT $1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'running', 0, 0, $2, $2
        FROM generate_series(1, $3::int4)
    """,
}
"""Statements that insert running propagations and moves. The plans and connections that they name do not exist."""
_ADVANCE = "UPDATE test_clock c SET status = 'advancing', target_at = now() WHERE c.account_id = $1"


async def insert_running(world: World, work: str, rows: Mapping[UUID, tuple[int, timedelta]]) -> None:
    """Insert running propagations or moves.

    For each account, `rows` has the number of rows and the age of their newest batch.
    """
    owner = await asyncpg.connect(as_superuser(world.database_url))
    await owner.execute("SET session_replication_role = replica")  # turns foreign keys off
    for account_id, (count, ago) in rows.items():
        await owner.execute(_RUNNING[work], account_id, world.deps.clock() - ago, count)
    await owner.close()


async def at_real_time(world: World, merchant: Merchant) -> Merchant:
    """Set the account's clock to real time.

    Discovery reads the work of such an account from indexes that begin with the time.
    """
    async with world.deps.db.transaction(merchant.account_id) as tx:
        await tx.execute("UPDATE account a SET clock_offset = interval '0' WHERE a.account_id = $1")
    return merchant


async def found(world: World) -> Mapping[str, set[UUID]]:
    """Return the accounts that each lane finds. Omit lanes that find no account."""
    due = {name: {each.account_id for each in await lane.due(world.deps)} for name, lane in LANE.items()}
    return {name: ids for name, ids in due.items() if ids}


async def lanes_of(world: World, merchant: Merchant) -> Sequence[str]:
    return sorted(name for name, ids in (await found(world)).items() if merchant.account_id in ids)


@pytest.mark.parametrize("moved", [False, True])
async def test_every_lane_finds_its_due_work(world: World, receiver: Receiver, *, moved: bool) -> None:
    """[D-5, D-45]"""
    merchant = await world.another()
    if not moved:
        await at_real_time(world, merchant)
    assert await found(world) == {}
    await register(merchant, receiver)
    await merchant.set_up_gateway(productCatalog=True)
    await merchant.enroll(await merchant.plan(await merchant.product(), await merchant.variable_product()))
    await merchant.enroll(await merchant.plan())
    assert await lanes_of(world, merchant) == ["generation", "mirroring", "push"]

    assert await world.run("generation", "mirroring") > 0
    assert await lanes_of(world, merchant) == ["issuance", "pricing", "push"]
    assert await world.run("push") > 0
    assert await world.run("issuance") == 1
    assert await lanes_of(world, merchant) == ["pricing", "push"]
    await world.run("push", "pricing")
    assert await found(world) == {}

    [charge] = (await merchant.get("/v1/sandbox/charges")).json["data"]
    await merchant.made(f"/v1/sandbox/charges/{charge['chargeId']}/pay")
    assert await lanes_of(world, merchant) == ["reconciliation"]
    await world.run("reconciliation", "push")
    assert {each["status"] for each in await merchant.invoices()} == {"paid", "awaiting_value"}
    assert await world.broken() == []


async def test_only_the_lane_test_clock_finds_an_account_whose_clock_advances(world: World) -> None:
    """[D-45]"""
    merchant = await at_real_time(world, await world.another())
    await merchant.enroll(await merchant.plan())
    async with world.deps.db.transaction(merchant.account_id) as tx:
        await tx.execute(_ADVANCE)
    assert await lanes_of(world, merchant) == ["test_clock"]


async def test_a_backlog_of_one_account_hides_no_other(world: World) -> None:
    """One account has more due rows than a poll reads, and all of them are older than the other account's due row.

    [D-5]
    """
    big, small = [await at_real_time(world, await world.another()) for _ in range(2)]
    plan = await big.plan()
    async with world.deps.db.transaction(big.account_id) as tx:
        await tx.fetch(SUBSCRIBE_MANY, plan["id"], MAX_DUE_ROWS + 1)
    await small.enroll(await small.plan())
    assert (await found(world))["generation"] == {big.account_id, small.account_id}

    assert await world.run("generation") == MAX_DUE_ROWS + 2
    assert (await found(world))["issuance"] == {big.account_id, small.account_id}


async def test_a_suspended_account_is_not_found_and_hides_no_other(world: World) -> None:
    """The suspended account has more due rows than a poll reads.

    These rows must not make polls check all accounts one by one. [D-242]
    """
    big, small = [await at_real_time(world, await world.another()) for _ in range(2)]
    plan = await big.plan()
    async with world.deps.db.transaction(big.account_id) as tx:
        await tx.fetch(SUBSCRIBE_MANY, plan["id"], MAX_DUE_ROWS + 1)
    await suspension.suspend(world.deps, big.account_id, asked_by=OPERATOR)
    await small.enroll(await small.plan())
    async with world.deps.db.discovery() as tx:
        stopped = [big.account_id]
        rows = [
            row
            for sql in DISCOVER_DUE["generation"]
            for row in await tx.fetch(sql, world.deps.clock(), stopped)
        ]
    assert [(row["account_id"], row["due_rows"]) for row in rows] == [(small.account_id, 1)]
    assert await found(world) == {"generation": {small.account_id}}

    await suspension.resume(world.deps, big.account_id, asked_by=OPERATOR)
    assert (await found(world))["generation"] == {big.account_id, small.account_id}


@pytest.mark.parametrize("work", _RUNNING)
@pytest.mark.parametrize("state", ["suspended", "advancing"])
async def test_running_propagations_that_must_wait_hide_no_other(world: World, work: str, state: str) -> None:
    """[D-242, D-45]"""
    big, small = [await at_real_time(world, await world.another()) for _ in range(2)]
    older, newer = timedelta(hours=2), timedelta(hours=1)
    await insert_running(world, work, {big.account_id: (MAX_DUE_ROWS, older), small.account_id: (1, newer)})
    if state == "suspended":
        await suspension.suspend(world.deps, big.account_id, asked_by=OPERATOR)
    else:
        async with world.deps.db.transaction(big.account_id) as tx:
            await tx.execute(_ADVANCE)
    assert (await found(world))["propagation"] == {small.account_id}


async def test_expired_keys_of_an_advancing_account_hide_no_other(world: World) -> None:
    """Expired keys are deleted even while the account's test clock advances. [D-247]"""
    big, small = [await at_real_time(world, await world.another()) for _ in range(2)]
    async with world.deps.db.transaction(big.account_id) as tx:
        await tx.execute(_ADVANCE)
    for merchant, keys, days in ((big, MAX_DUE_ROWS, 2), (small, 1, 1)):
        async with world.deps.db.transaction(merchant.account_id) as tx:
            await tx.execute(
                """
                INSERT INTO idempotency_key (account_id, key, route, body_hash, expires_at)
                SELECT $1, n::text, 'r', 'h', now() - $3::int4 * interval '1 day' FROM generate_series(1, $2::int4) n
                """,
                keys,
                days,
            )
    for _ in range(2):
        await world.run("retention")
    for merchant in (big, small):
        async with world.deps.db.transaction(merchant.account_id) as tx:
            assert await tx.fetchval("SELECT count(*) FROM idempotency_key i WHERE i.account_id = $1") == 0


async def test_a_lease_that_ended_is_found(world: World) -> None:
    """[D-5]"""
    merchant = await at_real_time(world, await world.another())
    await merchant.enroll(await merchant.plan())
    await world.run("generation")
    async with world.deps.db.transaction(merchant.account_id) as tx:
        leased = "UPDATE invoice v SET lease_until = now() + $2::interval WHERE v.account_id = $1"
        await tx.execute(leased, timedelta(seconds=50))
    assert await lanes_of(world, merchant) == []
    async with world.deps.db.transaction(merchant.account_id) as tx:
        await tx.execute("UPDATE invoice v SET lease_until = now() WHERE v.account_id = $1")
    assert await lanes_of(world, merchant) == ["issuance"]


@pytest.mark.faults
async def test_a_failed_delivery_is_found_when_it_is_due_again(world: World, receiver: Receiver) -> None:
    """[D-39 schedule]"""
    merchant = await at_real_time(world, await world.another())
    await register(merchant, receiver)
    receiver.answer = always(500)
    await merchant.enroll(await merchant.plan())
    assert await lanes_of(world, merchant) == ["generation", "push"]
    await world.run("push")
    assert await lanes_of(world, merchant) == ["generation"]

    receiver.answer = always(200)
    async with asyncio.timeout(15):
        while not await world.run("push"):  # noqa: ASYNC110 - the account's clock is real time
            await asyncio.sleep(0.2)
    assert receiver.sequences == [1, 1]
    assert await lanes_of(world, merchant) == ["generation"]


async def test_events_are_found_after_the_webhook_was_changed(world: World, receiver: Receiver) -> None:
    """[D-39 resuming]"""
    merchant = await at_real_time(world, await world.another())
    plan = await merchant.plan()
    await merchant.enroll(plan)
    await register(merchant, receiver)
    await world.run("push")
    assert "push" not in await lanes_of(world, merchant)  # the event is older than the webhook
    receiver.answer = always(410)
    await merchant.enroll(plan)
    assert "push" in await lanes_of(world, merchant)
    await world.run("push")
    await merchant.enroll(plan)
    assert "push" not in await lanes_of(world, merchant)  # a disabled webhook gets no events

    receiver.answer = always(200)
    await register(merchant, receiver)
    assert "push" in await lanes_of(world, merchant)
    await world.run("push")
    assert len(receiver.sequences) > 1
    assert "push" not in await lanes_of(world, merchant)
    assert (await merchant.delete("/v1/integration/webhook")).status == 204
    await merchant.enroll(plan)
    assert "push" not in await lanes_of(world, merchant)
    assert await world.broken() == []


async def test_an_event_emitted_while_a_worker_sends_is_found(world: World, receiver: Receiver) -> None:
    """A worker finds no further event. Before the worker stores this result, another event is committed. [D-39]"""
    merchant = await at_real_time(world, await world.another())
    await register(merchant, receiver)
    plan = await merchant.plan()
    await merchant.enroll(plan)
    await asyncio.gather(*(merchant.enroll(plan) for _ in range(8)), *(world.run("push") for _ in range(3)))
    await world.run("push")
    events: list[Json] = await merchant.events()
    assert sorted(set(receiver.sequences)) == [each["sequence"] for each in events]
    assert "push" not in await lanes_of(world, merchant)
    assert await world.broken() == []
