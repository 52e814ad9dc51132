"""Forged and revoked API keys, requests above the rate limit, and forged gateway webhooks (D-191, D-240, D-241)."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import httpx

from fatura.domain.credentials import SECRET_BYTES, Mode, format_key
from fatura.domain.tags import Tagger
from fatura.usecases.refused_webhooks import LOG_SECONDS
from fatura.usecases.remembered_keys import ACCEPTED_SECONDS, REFUSED_SECONDS
from tests.support.captured_logs import captured_logs
from tests.support.expect import UNKNOWN_ID, problem
from tests.support.sandbox_steps import reads_held, until_waiting
from tests.support.webhook_steps import Hook, hook, issued_with_webhooks
from tests.support.world import Answer, World, open_world

PATH = "/v1/integration"
KEYS = f"{PATH}/api-keys"
HOME, ELSEWHERE = "192.0.2.1", "192.0.2.2"
WRONG_SECRET = "not-the-secret-!!"
AT_ONCE = 200
WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@asynccontextmanager
async def at(world: World, address: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client that calls the world's API from the client address `address`."""
    app: Any = world._client._transport.app  # pyright: ignore[reportAttributeAccessIssue] - an ASGITransport
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://fatura.test") as client:
        yield client


async def ask(world: World, key: str, *, address: str = HOME) -> Answer:
    async with at(world, address) as client:
        response = await client.get(PATH, headers={"Authorization": f"Bearer {key}"})
    return Answer(response.status_code, response.content, response.headers)


async def post(world: World, sent: Hook, *, address: str = HOME) -> Answer:
    async with at(world, address) as client:
        return await sent.send(world, client=client)


async def statuses(world: World, sent: Hook, *, count: int, address: str = HOME) -> list[int]:
    return [(await post(world, sent, address=address)).status for _ in range(count)]


def forged(key: str) -> str:
    """Return a well-formed key of the same account with another secret."""
    return key[:-1] + ("A" if key[-1] != "A" else "B")


async def forged_hooks(world: World) -> list[Hook]:
    """Return webhooks that Fatura must refuse. The first webhook has a wrong secret, and the others have wrong ids."""
    invoice = await issued_with_webhooks(world)
    live = await world.another(Mode.LIVE)
    return [
        await hook(world, invoice, secret=WRONG_SECRET),
        await hook(world, invoice, account=UNKNOWN_ID),
        await hook(world, invoice, connection=str(uuid4())),
        await hook(world, invoice, account=str(live.account_id)),
        await hook(world, invoice, connection="no-uuid"),
    ]


async def test_a_forged_key_is_refused_without_a_transaction(world: World):
    """[D-240, D-41, spec 5.3]"""
    async with reads_held(world, "api_key"):
        answers = await asyncio.gather(*(ask(world, forged(world.api_key)) for _ in range(AT_ONCE)))
        assert await world.sql(WAITING) == []

    assert {problem(each) for each in answers} == {(401, "engine.unauthorized", None)}
    assert (await ask(world, world.api_key)).status == 200


async def test_a_new_key_is_accepted_beside_many_forged_ones(world: World):
    """The API accepts all concurrent first requests with the new key. [D-240]"""
    new = (await world.made(KEYS, {"name": "new"}))["key"]
    sent = [key for _ in range(AT_ONCE) for key in (forged(world.api_key), new)]

    answers = await asyncio.gather(*(ask(world, key) for key in sent))

    assert [each.status for each in answers] == [401, 200] * AT_ONCE


async def test_a_revoked_key_costs_one_transaction_per_minute(world: World):
    """[D-240]"""
    key = await world.made(KEYS, {"name": "leaked"})
    assert (await ask(world, key["key"])).status == 200
    await world.delete(f"{KEYS}/{key['id']}")
    assert (await ask(world, key["key"])).status == 401

    async with reads_held(world, "api_key"):
        answers = await asyncio.gather(*(ask(world, key["key"]) for _ in range(AT_ONCE)))
        assert {each.status for each in answers} == {401}
        world.deps.refused_keys._clock = lambda: REFUSED_SECONDS + asyncio.get_running_loop().time()
        asking = asyncio.create_task(ask(world, key["key"]))
        await until_waiting(world)
    assert (await asking).status == 401


async def test_look_ups_of_revoked_keys_are_limited(world: World):
    """Keys in use and other accounts are not affected. A key that was not used recently gets 429. [D-240]"""
    seconds, clean = [time.monotonic()], await world.another(Mode.SANDBOX)
    world.deps.failed_lookups._clock = world.deps.accepted_keys._clock = lambda: seconds[0]
    tagger, account_id = world.deps.tagger, UUID(str(world.account_id))
    new = (await world.made(KEYS, {"name": "new"}))["key"]
    deleted = [
        format_key(account_id, Mode.SANDBOX, secret=secrets.token_bytes(SECRET_BYTES), tagger=tagger)
        for _ in range(AT_ONCE)
    ]
    assert [(await ask(world, key)).status for key in deleted] == [401] * 100 + [429] * 100

    assert problem(refused := await ask(world, new)) == (429, "engine.rate_limited", None)
    assert refused.headers["retry-after"] == "1"
    seconds[0] += ACCEPTED_SECONDS
    assert (await ask(world, world.api_key)).status == 200
    assert (await ask(world, clean.api_key)).status == 200
    assert (await ask(world, new)).status == 200
    statuses = [(await ask(world, key)).status for key in deleted[100:]]
    assert statuses == [401] * 10 + [429] * 90
    seconds[0] += ACCEPTED_SECONDS
    assert (await ask(world, new)).status == 200


async def test_a_request_above_the_rate_limit_costs_no_transaction(database_url: str):
    """The API looks up the key only if its last accepted request is at least a second old. [D-48, D-240]"""
    async with open_world(database_url, FATURA_RATE_LIMIT="2") as world:
        seconds = hold_time(world)
        assert [(await ask(world, world.api_key)).status for _ in range(5)] == [200] * 4 + [429]
        async with reads_held(world, "api_key"):
            answers = await asyncio.gather(*(ask(world, world.api_key) for _ in range(AT_ONCE)))
            assert await world.sql(WAITING) == []
            assert {problem(each) for each in answers} == {(429, "engine.rate_limited", None)}
            seconds[0] += ACCEPTED_SECONDS
            asking = asyncio.create_task(ask(world, world.api_key))
            await until_waiting(world)
        assert (await asking).status == 200


async def test_a_revoked_key_gets_429_for_a_second_at_most(database_url: str):
    """The account is above its rate limit, so the API does not look up the key for up to a second. [D-41, D-240]"""
    async with open_world(database_url, FATURA_RATE_LIMIT="2") as world:
        seconds = hold_time(world)
        leaked = await world.made(KEYS, {"name": "leaked"})
        assert (await ask(world, leaked["key"])).status == 200
        await world.delete(f"{KEYS}/{leaked['id']}")
        assert (await ask(world, world.api_key)).status == 200
        assert (await ask(world, leaked["key"])).status == 429
        seconds[0] += ACCEPTED_SECONDS
        assert (await ask(world, leaked["key"])).status == 401


def hold_time(world: World) -> list[float]:
    """Stop the clock that the rate limits and the accepted keys use. Return a list that contains the clock's time.

    A test moves the clock by changing the number in this list.
    """
    seconds = [time.monotonic()]
    app: Any = world._client._transport.app  # pyright: ignore[reportAttributeAccessIssue] - an ASGITransport
    app.state.gate.limits.accounts._clock = world.deps.accepted_keys._clock = lambda: seconds[0]
    return seconds


async def test_refused_webhooks_get_the_same_answers(database_url: str):
    """Different answers would reveal which connections exist. [D-191, D-241, D-35 webhook refused]"""
    async with open_world(database_url, FATURA_REFUSED_WEBHOOK_RATE_LIMIT="2") as world:
        answers: list[list[tuple[int, bytes]]] = []
        for number, each in enumerate(await forged_hooks(world)):
            refused = [await post(world, each, address=f"192.0.2.{number}") for _ in range(6)]
            assert [answer.status for answer in refused] == [404] * 4 + [429] * 2
            assert problem(refused[-1]) == (429, "engine.rate_limited", None)
            assert 0 < int(refused[-1].headers["retry-after"]) <= 30
            answers.append([(answer.status, answer.body) for answer in refused])
        assert all(each == answers[0] for each in answers)


async def test_refused_webhooks_of_an_address_count_together(database_url: str):
    """[D-191]"""
    async with open_world(database_url, FATURA_REFUSED_WEBHOOK_RATE_LIMIT="2") as world:
        hooks = await forged_hooks(world)
        answers = await asyncio.gather(*(post(world, each) for each in hooks * 10))
        assert sorted(each.status for each in answers) == [404] * 4 + [429] * 46
        assert len({each.body for each in answers}) == 2
        assert await statuses(world, hooks[0], count=1, address=ELSEWHERE) == [404]


async def test_an_ipv6_network_counts_as_one_address(database_url: str):
    """One client can control all addresses that have the same first 48 bits. [D-191]"""
    async with open_world(database_url, FATURA_REFUSED_WEBHOOK_RATE_LIMIT="1") as world:
        unknown = await hook(world, None, connection=UNKNOWN_ID)
        sent = [await post(world, unknown, address=f"2001:db8:0:{number}::1") for number in range(3)]
        assert [each.status for each in sent] == [404, 404, 429]
        assert await statuses(world, unknown, count=1, address="2001:db8:1::1") == [404]


async def test_behind_trusted_proxies_the_clients_address_counts(database_url: str):
    """[D-191]"""
    async with open_world(
        database_url, FATURA_REFUSED_WEBHOOK_RATE_LIMIT="1", FATURA_TRUSTED_PROXIES="1"
    ) as world:
        unknown = await hook(world, None, connection=UNKNOWN_ID)
        client, other = (
            replace(unknown, headers={"X-Forwarded-For": f"198.51.100.{number}"}) for number in (1, 2)
        )
        assert await statuses(world, client, count=3) == [404, 404, 429]
        assert await statuses(world, client, count=1, address=ELSEWHERE) == [429]
        assert await statuses(world, other, count=1) == [404]


async def test_without_trusted_proxies_a_client_cannot_choose_its_address(database_url: str):
    """[D-191]"""
    async with open_world(database_url, FATURA_REFUSED_WEBHOOK_RATE_LIMIT="1") as world:
        unknown = await hook(world, None, connection=UNKNOWN_ID)
        tried = [
            (await post(world, replace(unknown, headers={"X-Forwarded-For": f"198.51.100.{number}"}))).status
            for number in range(3)
        ]
        assert tried == [404, 404, 429]


async def test_authentic_webhooks_are_accepted_beside_forged_ones_from_the_same_address(database_url: str):
    """A provider sends the webhooks of all its merchants from few addresses. [D-191, D-192]"""
    async with open_world(database_url, FATURA_REFUSED_WEBHOOK_RATE_LIMIT="2") as world:
        genuine = await hook(world, await issued_with_webhooks(world))
        wrong = replace(genuine, secret=WRONG_SECRET)
        assert (await statuses(world, wrong, count=5))[-1] == 429

        mixed = await asyncio.gather(*(post(world, each) for each in [genuine, wrong] * 20))

        assert [each.status for each in mixed] == [200, 429] * 20


async def test_forged_webhooks_cost_no_transaction(world: World):
    """[D-241]"""
    _, *unknown = await forged_hooks(world)
    async with reads_held(world, "account"), reads_held(world, "gateway_connection"):
        answers = await asyncio.gather(*(post(world, each) for each in unknown * 50))
        assert await world.sql(WAITING) == []
    assert {each.status for each in answers} == {404}


async def test_a_forged_webhook_is_refused_before_its_body_is_read(world: World):
    """[D-241]"""
    known, *unknown = await forged_hooks(world)
    read = list[Hook]()

    async def body(sent: Hook) -> AsyncGenerator[bytes]:
        read.append(sent)
        yield b" " * 70_000

    async with at(world, HOME) as client:
        answers = [
            await client.post(
                f"/gateways/{each.account}/{each.connection}/webhook",
                content=body(each),
                headers={"X-Request-Id": "same"},
            )
            for each in (*unknown, known)
        ]
    assert [each.status_code for each in answers] == [404] * len(unknown) + [413]
    assert {each.content for each in answers[:-1]} == {(await post(world, known)).body}
    assert read == [known]


async def test_unsigned_webhooks_of_a_known_connection_share_one_database_connection(world: World):
    """Strangers may know the URL of a connection's webhooks, because the merchant gives it to the provider. [D-241]"""
    first, *_ = await forged_hooks(world)
    second = replace(first, connection=(await world.connect())["connectionId"])
    async with reads_held(world, "gateway_connection"):
        sending = [
            asyncio.create_task(post(world, each, address=f"198.51.100.{number}"))
            for number in range(100)
            for each in (first, second)
        ]
        await until_waiting(world)
        await asyncio.gather(*(ask_products(world) for _ in range(20)))
        assert len(await world.sql(WAITING)) == 1
    assert {each.status for each in await asyncio.gather(*sending)} == {404}


async def ask_products(world: World) -> None:
    assert (await world.get("/v1/products")).status == 200


async def test_refused_webhooks_of_a_connection_are_logged_once_a_minute(world: World):
    """[D-241]"""
    first, *_ = await forged_hooks(world)
    second = replace(first, connection=(await world.connect())["connectionId"])
    seconds = [time.monotonic()]
    world.deps.refused_webhooks._clock = lambda: seconds[0]
    with captured_logs() as logs:
        await asyncio.gather(*(post(world, each) for each in [first, second] * 5))
        seconds[0] += LOG_SECONDS
        await post(world, first)
    lines = [json.loads(line) for line in logs.getvalue().splitlines()]
    assert sorted(
        (line["connection_id"], line["webhooks"])
        for line in lines
        if line["event"] == "gateway.webhook_refused"
    ) == sorted([(first.connection, 1), (first.connection, 5), (second.connection, 1)])


async def test_a_connection_id_of_another_installation_is_unknown(world: World):
    """[D-241]"""
    genuine = await hook(world, await issued_with_webhooks(world))
    other = Tagger(bytes(32)).tagged_connection_id(UUID(genuine.connection), account_id=world.account_id)
    assert (await post(world, replace(genuine, connection=str(other)))).status == 404
    assert (await post(world, genuine)).status == 200


async def test_authentic_webhooks_of_a_connection_are_limited(database_url: str):
    """Gateways repeat webhooks that were refused. Forged webhooks do not count towards this limit. [D-192]"""
    async with open_world(database_url, FATURA_WEBHOOK_RATE_LIMIT="2") as world:
        invoice = await issued_with_webhooks(world)
        genuine, wrong = await hook(world, invoice), await hook(world, invoice, secret=WRONG_SECRET)
        second = (await world.connect(webhookSecret=genuine.secret))["connectionId"]
        assert set(await statuses(world, wrong, count=9)) == {404}

        answers = [await post(world, genuine) for _ in range(5)]

        assert [each.status for each in answers] == [200, 200, 200, 200, 429]
        assert problem(answers[-1]) == (429, "engine.rate_limited", None)
        assert 0 < int(answers[-1].headers["retry-after"]) <= 30
        assert (await post(world, await hook(world, None, connection=second))).status == 200
        assert await statuses(world, wrong, count=1) == [404]
