"""A request whose client withholds the body is checked again when the body arrives (D-10)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fatura.api.app import create_app
from fatura.usecases.accounts import suspension
from tests.support.operator import OPERATOR
from tests.support.world import Json, World
from tests.unit.raw_http import answer, served

KEYS = "/v1/integration/api-keys"
BODY = b'{"name":"minted"}'


async def nothing(_world: World, _key: Json) -> None:
    pass


async def revoke(world: World, key: Json) -> None:
    assert (await world.delete(f"{KEYS}/{key['id']}")).status == 204


async def suspend(world: World, _key: Json) -> None:
    await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)


async def expire(world: World, key: Json) -> None:
    await world.sql("UPDATE api_key SET expires_at = created_at WHERE api_key_id = $1::uuid", key["id"])


async def lose_scope(world: World, key: Json) -> None:
    await world.sql("UPDATE api_key SET scopes = '{read}' WHERE api_key_id = $1::uuid", key["id"])


def head(key: Json) -> bytes:
    lines = (
        f"POST {KEYS} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {key['key']}",
        "Idempotency-Key: k",
        "Content-Type: application/json",
        f"Content-Length: {len(BODY)}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def until_used(world: World, key: Json) -> None:
    """Wait until a request with this key was authenticated."""
    statement = "SELECT last_used_at FROM api_key WHERE api_key_id = $1::uuid"
    async with asyncio.timeout(10):
        while (await world.sql(statement, key["id"]))[0]["last_used_at"] is None:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("meanwhile", "status", "problem_type"),
    [
        (nothing, 201, None),
        (revoke, 401, "engine.unauthorized"),
        (expire, 401, "engine.unauthorized"),
        (suspend, 403, "engine.account_suspended"),
        (lose_scope, 403, "engine.forbidden"),
    ],
)
async def test_a_key_must_still_work_when_the_body_arrives(
    world: World, meanwhile: Callable[[World, Json], Awaitable[Any]], status: int, problem_type: str | None
):
    """[D-10, D-41, D-242]"""
    key = await world.made(KEYS, {"name": "leaked"})
    async with served(create_app(world.deps)) as connect, connect() as (reader, writer):
        writer.write(head(key))
        await until_used(world, key)
        await meanwhile(world, key)
        writer.write(BODY)
        got, _, received = await answer(reader)
    assert (got, json.loads(received).get("type")) == (status, problem_type)
    minted = await world.sql("SELECT FROM api_key WHERE name = 'minted'")
    assert len(minted) == (1 if status == 201 else 0)


async def test_a_withheld_body_takes_no_place_of_the_account(world: World):
    """[D-179]"""
    key = await world.made(KEYS, {"name": "slow"})
    world.deps.open_requests.most = 1
    async with served(create_app(world.deps)) as connect, connect() as (reader, writer):
        writer.write(head(key))
        await until_used(world, key)
        assert (await world.get("/v1/products")).status == 200
        writer.write(BODY)
        assert (await answer(reader))[0] == 201


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("body", [b"zz\r\n{}\r\n", b"2\r\n{}XX\r\n", b"2\r\n{}\r\n0\r\nno trailer\r\n\r\n"])
async def test_a_delete_with_malformed_chunks_takes_no_effect(world: World, body: bytes, pieces: int):
    """[D-10, D-41]"""
    key = await world.made(KEYS, {"name": "kept"})
    lines = (f"DELETE {KEYS}/{key['id']} HTTP/1.1", "Host: x", f"Authorization: Bearer {key['key']}")
    start = "".join(f"{line}\r\n" for line in (*lines, "Transfer-Encoding: chunked", "")).encode()
    async with served(create_app(world.deps)) as connect, connect() as (reader, writer):
        if pieces == 1:
            writer.write(start + body)
        else:
            writer.write(start)
            await until_used(world, key)
            writer.write(body)
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""
    [stored] = await world.sql("SELECT revoked_at FROM api_key WHERE api_key_id = $1::uuid", key["id"])
    assert stored["revoked_at"] is None
