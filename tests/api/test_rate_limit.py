"""Each account may send a limited number of requests per second (D-48)."""

import asyncio
import time

from tests.support.expect import problem
from tests.support.world import Answer, World, open_world

BODY = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 1}}


async def burst(world: World, count: int) -> list[Answer]:
    """Send requests one after the other, without a pause."""
    return [await world.get("/v1/integration/gateways") for _ in range(count)]


async def test_a_burst_of_twice_the_rate_is_allowed(database_url: str):
    """[D-48, D-12]"""
    async with open_world(database_url, FATURA_RATE_LIMIT="5") as world:
        started = time.monotonic()
        answers = await burst(world, 30)
        trickled = 5 * (time.monotonic() - started)

        passed = [answer.status for answer in answers].index(429)
        assert 10 <= passed <= 10 + trickled + 1
        refused = answers[passed]
        assert problem(refused) == (429, "engine.rate_limited", None)
        assert refused.headers["retry-after"] == "1"
        await asyncio.sleep(1)
        assert (await world.get("/v1/integration/gateways")).status == 200


async def test_the_keys_of_an_account_share_a_bucket(database_url: str):
    """[D-48]"""
    async with open_world(database_url, FATURA_RATE_LIMIT="1") as world:
        second = (await world.made("/v1/integration/api-keys", {"name": "second"}))["key"]
        other = await world.another()
        assert {answer.status for answer in await burst(world, 6)} == {200, 429}

        headers = {"Authorization": f"Bearer {second}"}
        assert (await world.get("/v1/integration", headers=headers)).status == 429
        assert (await other.get("/v1/integration")).status == 200


async def test_the_limit_comes_before_the_idempotency_key(database_url: str):
    """A repeated request counts against the limit, although it gets the stored answer. [D-48, D-10]"""
    async with open_world(database_url, FATURA_RATE_LIMIT="1") as world:
        answers = [await world.post("/v1/products", BODY, key="k") for _ in range(4)]

        assert [answer.status for answer in answers] == [201, 201, 429, 429]
        assert answers[0].body == answers[1].body


async def test_unauthenticated_requests_are_not_counted(database_url: str):
    """[D-48, D-10]"""
    async with open_world(database_url, FATURA_RATE_LIMIT="1") as world:
        wrong = world.api_key[:-1] + ("A" if world.api_key[-1] != "A" else "B")
        headers = {"Authorization": f"Bearer {wrong}"}
        assert {(await world.get("/v1/products", headers=headers)).status for _ in range(9)} == {401}
        assert {(await world.get(path)).status for path in ("/health", "/docs", "/docs-json") * 4} == {200}
        assert (await world.get("/v1/products")).status == 200
