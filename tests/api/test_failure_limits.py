"""Wrong API keys and unauthentic webhooks are limited for each client address (D-191).

Requests above the limit are refused without a database query.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from fatura.api.http.rate_limits import FailureLimiter
from fatura.domain.credentials import Mode
from fatura.store.db import connect
from tests.support import world as worlds
from tests.support.expect import UNKNOWN_ID, problem
from tests.support.sandbox_steps import reads_held
from tests.support.webhook_steps import Hook, hook, issued_with_webhooks
from tests.support.world import Answer, World, open_world

PATH = "/v1/integration"
HOME, ELSEWHERE = "192.0.2.1", "192.0.2.2"
WRONG_SECRET = "not-the-secret-!!"
sent: list[str] = []


class Recording(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument] - not generic at run time
    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        sent.append(query)
        return await super().fetch(query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        sent.append(query)
        return await super().fetchrow(query, *args, **options)


@asynccontextmanager
async def at(world: World, address: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client that calls the world's API from an address."""
    app: Any = world._client._transport.app  # pyright: ignore[reportAttributeAccessIssue] - an ASGITransport
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://fatura.test") as client:
        yield client


async def ask(world: World, address: str, key: str | None, **headers: str) -> Answer:
    """Send a request with an API key from an address. An underscore in a keyword stands for a hyphen."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    async with at(world, address) as client:
        response = await client.get(PATH, headers=sent)
    return Answer(response.status_code, response.content, response.headers)


async def post(world: World, address: str, sent: Hook) -> Answer:
    async with at(world, address) as client:
        return await sent.send(world, client=client)


def without_allowance(world: World) -> None:
    """Use up the allowance that all exhausted addresses share, so that only the bucket of each address counts."""
    for limiter in _failure_limiters(world):
        limiter._allowance._full_at["everyone"] = time.monotonic() + 30


def _failure_limiters(world: World) -> tuple[FailureLimiter, FailureLimiter]:
    app: Any = world._client._transport.app  # pyright: ignore[reportAttributeAccessIssue] - an ASGITransport
    limits = app.state.gate.limits
    return limits.wrong_keys, limits.refused_webhooks


def wrong(key: str) -> str:
    """Return a well-formed key of the same account with another secret."""
    return key[:-1] + ("A" if key[-1] != "A" else "B")


async def statuses(world: World, address: str, key: str | None, *, count: int, **headers: str) -> list[int]:
    return [(await ask(world, address, key, **headers)).status for _ in range(count)]


async def test_wrong_keys_are_limited_before_the_database_is_asked(database_url: str):
    """[D-191, D-48, D-10]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="2") as world:
        without_allowance(world)
        assert await statuses(world, HOME, wrong(world.api_key), count=4) == [401] * 4
        async with reads_held(world, "api_key"):
            refused = await ask(world, HOME, wrong(world.api_key))

        assert problem(refused) == (429, "engine.rate_limited", None)
        assert 0 < int(refused.headers["retry-after"]) <= 30
        assert await statuses(world, ELSEWHERE, wrong(world.api_key), count=1) == [401]


async def test_accepted_keys_are_not_blocked_by_wrong_keys_from_the_same_address(database_url: str):
    """Many clients may share one address, for example behind a proxy. [D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="2") as world:
        without_allowance(world)
        new = (await world.made(f"{PATH}/api-keys", {"name": "new"}))["key"]
        assert await statuses(world, ELSEWHERE, world.api_key, count=1) == [200]
        await statuses(world, HOME, wrong(world.api_key), count=4)

        assert await statuses(world, HOME, world.api_key, count=9) == [200] * 9
        assert await statuses(world, HOME, new, count=1) == [429]
        assert await statuses(world, ELSEWHERE, new, count=1) == [200]


async def test_an_exhausted_address_does_not_lock_out_new_keys_and_connections(database_url: str):
    """The process accepts a few attempts per second from all exhausted addresses together. [D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="1") as world:
        new = (await world.made(f"{PATH}/api-keys", {"name": "new"}))["key"]
        genuine = await hook(world, await issued_with_webhooks(world))
        forged = await hook(world, None, connection=str(uuid4()))
        await statuses(world, HOME, wrong(world.api_key), count=4)
        for _ in range(4):
            await post(world, HOME, forged)

        assert await statuses(world, HOME, new, count=1) == [200]
        assert (await post(world, HOME, genuine)).status == 200
        without_allowance(world)
        assert await statuses(world, HOME, wrong(world.api_key), count=1) == [429]
        assert await statuses(world, HOME, new, count=3) == [200] * 3
        assert (await post(world, HOME, genuine)).status == 200


async def test_concurrent_wrong_keys_do_not_exceed_the_limit(database_url: str):
    """[D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="2") as world:
        without_allowance(world)
        answers = await asyncio.gather(*(ask(world, HOME, wrong(world.api_key)) for _ in range(50)))
        assert sum(each.status == 401 for each in answers) == 4


async def test_malformed_keys_do_not_count(database_url: str):
    """Malformed keys do not reach the database. [D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="1") as world:
        without_allowance(world)
        assert await statuses(world, HOME, "rk_test_short", count=9) == [401] * 9
        assert await statuses(world, HOME, world.api_key, count=1) == [200]


async def test_a_revoked_key_is_limited_too(database_url: str):
    """[D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="2") as world:
        key = await world.made(f"{PATH}/api-keys", {"name": "leaked"})
        assert await statuses(world, HOME, key["key"], count=1) == [200]
        await world.delete(f"{PATH}/api-keys/{key['id']}")
        assert await statuses(world, HOME, key["key"], count=5) == [401, 401, 401, 401, 429]


async def test_requests_without_a_key_are_not_limited(database_url: str):
    """Such requests do not reach the database. [D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="1") as world:
        assert await statuses(world, HOME, None, count=9) == [401] * 9
        assert await statuses(world, HOME, world.api_key, count=1) == [200]


async def test_behind_trusted_proxies_the_clients_address_counts(database_url: str):
    """[D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="1", FATURA_TRUSTED_PROXIES="1") as world:
        without_allowance(world)
        client, other = {"X_Forwarded_For": "198.51.100.1"}, {"X_Forwarded_For": "198.51.100.2"}
        assert await statuses(world, HOME, wrong(world.api_key), count=3, **client) == [401, 401, 429]
        assert await statuses(world, ELSEWHERE, wrong(world.api_key), count=1, **client) == [429]
        assert await statuses(world, HOME, wrong(world.api_key), count=1, **other) == [401]


async def test_without_trusted_proxies_a_client_cannot_choose_its_address(database_url: str):
    """[D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="1") as world:
        without_allowance(world)
        tried = [
            await statuses(world, HOME, wrong(world.api_key), count=1, X_Forwarded_For=f"198.51.100.{number}")
            for number in range(3)
        ]
        assert tried == [[401], [401], [429]]


async def test_unauthentic_webhooks_are_limited_before_the_database_is_asked(database_url: str):
    """Unknown ids count like a wrong signature. [D-191, D-35 webhook refused]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="2") as world:
        without_allowance(world)
        invoice = await issued_with_webhooks(world)
        live = await world.another(Mode.LIVE)
        forged = [
            await hook(world, invoice, secret=WRONG_SECRET),
            await hook(world, invoice, account=UNKNOWN_ID),
            await hook(world, invoice, connection=str(uuid4())),
            await hook(world, invoice, account=str(live.account_id)),
        ]
        assert [(await post(world, HOME, each)).status for each in forged] == [404] * 4
        async with reads_held(world, "account"):
            refused = [await post(world, HOME, each) for each in forged]

        assert {(each.status, each.type) for each in refused} == {(429, "engine.rate_limited")}
        assert len({each.body for each in refused}) == 1
        assert all(0 < int(each.headers["retry-after"]) <= 30 for each in refused)
        assert (await post(world, ELSEWHERE, forged[0])).status == 404
        assert await statuses(world, HOME, world.api_key, count=1) == [200]


async def test_every_refused_webhook_runs_the_same_statements(
    database_url: str, monkeypatch: pytest.MonkeyPatch
):
    """The time of the answer does not reveal which accounts and connections exist. [D-191, D-35 webhook refused]"""
    monkeypatch.setattr(worlds, "connect", partial(connect, connection_class=Recording))
    async with open_world(database_url) as world:
        genuine = await hook(world, await issued_with_webhooks(world))
        changes = ({"account": UNKNOWN_ID}, {"connection": UNKNOWN_ID}, {"secret": WRONG_SECRET})
        ran: list[list[str]] = []
        for change in changes:
            sent.clear()
            assert (await replace(genuine, **change).send(world)).status == 404
            ran.append([each for each in sent if each.lstrip().startswith("SELECT")])
        assert ran[0]
        assert ran[0] == ran[1] == ran[2]


async def test_accepted_connections_are_not_blocked_by_other_webhooks_from_the_same_address(
    database_url: str,
):
    """A provider sends the webhooks of all its merchants from few addresses. [D-191]"""
    async with open_world(database_url, FATURA_FAILURE_RATE_LIMIT="2") as world:
        without_allowance(world)
        genuine = await hook(world, await issued_with_webhooks(world))
        assert (await post(world, ELSEWHERE, genuine)).status == 200
        for _ in range(4):
            await post(world, HOME, await hook(world, None, connection=str(uuid4())))

        assert (await post(world, HOME, await hook(world, None, connection=UNKNOWN_ID))).status == 429
        assert (await post(world, HOME, genuine)).status == 200
        forged = await hook(world, None, secret=WRONG_SECRET)
        assert [(await post(world, HOME, forged)).status for _ in range(5)] == [404, 404, 404, 404, 429]


async def test_authentic_webhooks_of_a_connection_are_limited(database_url: str):
    """Gateways repeat webhooks that were refused. Forged webhooks do not count towards this limit. [D-192]"""
    async with open_world(database_url, FATURA_WEBHOOK_RATE_LIMIT="2") as world:
        invoice = await issued_with_webhooks(world)
        genuine, forged = await hook(world, invoice), await hook(world, invoice, secret=WRONG_SECRET)
        second = (await world.connect(webhookSecret=genuine.secret))["connectionId"]
        assert {(await post(world, HOME, forged)).status for _ in range(9)} == {404}

        answers = [await post(world, HOME, genuine) for _ in range(5)]

        assert [each.status for each in answers] == [200, 200, 200, 200, 429]
        assert problem(answers[-1]) == (429, "engine.rate_limited", None)
        assert 0 < int(answers[-1].headers["retry-after"]) <= 30
        assert (await post(world, HOME, await hook(world, None, connection=second))).status == 200
        assert (await post(world, HOME, forged)).status == 404
