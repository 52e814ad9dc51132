"""Concurrent requests with one Idempotency-Key, and routes that ignore the key (D-14)."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from fatura.store import idempotency
from tests.support.expect import hashed, problem
from tests.support.populated import connected
from tests.support.sandbox_steps import row_held, until_waiting
from tests.support.world import World

BODY = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 9990}}


@asynccontextmanager
async def held(world: World, key: str) -> AsyncGenerator[None]:
    """Reserve an Idempotency-Key during the block, as a request does while it runs."""
    async with connected(world.database_url, world.account_id) as connection:
        running = connection.transaction()
        await running.start()
        await connection.execute(
            "INSERT INTO idempotency_key (account_id, key, route, body_hash, expires_at) "
            "VALUES ($1, $2, 'POST /v1/products', '', now() + interval '1 day')",
            world.account_id,
            hashed(key),
        )
        yield
        await running.rollback()


@pytest.mark.faults
async def test_a_request_waits_5_seconds_for_a_key_in_use(world: World):
    """[D-14, D-12]"""
    async with held(world, "k"):
        asked = time.monotonic()
        refused = await world.post("/v1/products", BODY, key="k")
        waited_seconds = time.monotonic() - asked

    assert problem(refused) == (409, "engine.idempotency_in_progress", None)
    assert int(refused.headers["retry-after"]) >= 1
    assert 4.5 < waited_seconds < 8
    assert await world.all("/v1/products") == []
    answer = await world.post("/v1/products", BODY, key="k")  # no request is using the key now
    assert (answer.status, "idempotent-replayed" in answer.headers) == (201, False)


async def test_a_wait_for_another_lock_is_a_503(world: World):
    """[D-14]"""
    subscription = await world.enroll(await world.plan())
    path = f"/v1/subscriptions/{subscription['id']}/cancel"
    async with row_held(world, "subscription", subscription_id=subscription["id"]):
        refused = await world.post(path, key="k")
    assert problem(refused) == (503, "engine.unavailable", None)
    assert (await world.post(path, key="k")).status == 200


async def test_the_second_request_runs_when_the_first_fails(world: World):
    """[D-14]"""
    async with held(world, "k"):
        second = asyncio.create_task(world.post("/v1/products", BODY, key="k"))
        await until_waiting(world)

    answer = await second
    assert (answer.status, "idempotent-replayed" in answer.headers) == (201, False)
    assert await world.all("/v1/products") == [answer.json]


async def test_other_keys_do_not_wait(world: World):
    """[D-14]"""
    async with held(world, "k"), asyncio.timeout(2):
        assert (await world.post("/v1/products", BODY, key="l")).status == 201
        assert (await world.post("/v1/products", BODY, key="m")).status == 201


async def test_only_one_of_concurrent_bodies_gets_the_key(world: World):
    """[D-14]"""
    answers = await asyncio.gather(
        *[world.post("/v1/products", BODY | {"name": f"n{number}"}, key="k") for number in range(8)]
    )

    assert sorted(answer.status for answer in answers) == [201] + [422] * 7
    assert len(await world.all("/v1/products")) == 1


async def test_queueing_a_sandbox_fault_ignores_the_key(world: World):
    """[D-14]"""
    connection = (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]
    fault = {"connectionId": connection, "operation": "get_charge", "fault": "server_error"}
    answers = [await world.post("/v1/sandbox/faults", fault, key="k") for _ in range(2)]

    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].json["id"] != answers[1].json["id"]
    assert await world.sql("SELECT key FROM idempotency_key WHERE key = $1", hashed("k")) == []


async def test_only_post_uses_the_key(world: World):
    """[D-14]"""
    product = (await world.post("/v1/products", BODY, key="k")).json
    headers = {"Idempotency-Key": "k"}

    changed = await world.patch(f"/v1/products/{product['id']}", {"name": "Pool"}, headers=headers)
    assert (changed.status, changed.json["name"]) == (200, "Pool")


async def test_retention_cannot_delete_a_key_that_a_request_is_replaying(world: World):
    """A request with a known key locks the key's row until the request has read the stored answer. [D-14]"""
    await world.post("/v1/products", BODY, key="one")
    far_ahead = world.deps.clock() + timedelta(days=99)
    async with world.deps.db.transaction(world.account_id) as replaying:
        assert not await idempotency.claim(
            replaying,
            hashed("one"),
            route="r",
            body_hash=b"h",
            real_now=world.deps.clock(),
            expires_at=far_ahead,
        )
        async with world.deps.db.transaction(world.account_id) as retention:
            assert await idempotency.delete_expired(retention, real_now=far_ahead, limit=10) == 0
        assert await idempotency.find(replaying, hashed("one")) is not None
    async with world.deps.db.transaction(world.account_id) as retention:
        assert await idempotency.delete_expired(retention, real_now=far_ahead, limit=10) == 1
