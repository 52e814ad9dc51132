"""A merchant asks the provider whether it accepts a connection's stored credentials (D-259)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import AuthFailedError
from tests.support.world import Answer, Merchant, World


async def _connection(world: World) -> Any:
    return (await world.get("/v1/integration/gateways")).json["data"][0]


async def _check(merchant: World | Merchant, connection: Any) -> Answer:
    return await merchant.post(f"/v1/integration/gateways/{connection['connectionId']}/check")


async def test_unreadable_credentials_count_as_a_failed_call(world: World) -> None:
    """[D-259]"""
    connection = await _connection(world)
    async with world.deps.db.transaction(world.account_id) as tx:
        await tx.execute("UPDATE gateway_connection SET credentials_sealed = '\\x00' WHERE account_id = $1")

    checked = (await _check(world, connection)).json
    assert checked["error"]["code"] == "credentials_unreadable"
    assert checked["connection"]["health"]["error"]["code"] == "credentials_unreadable"


async def test_new_credentials_stay_good_when_an_older_check_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merchant replaces a secret while the provider refuses the old one. [D-259]"""
    connection = await _connection(world)
    asked, replaced = asyncio.Event(), asyncio.Event()

    async def refuse(_: SandboxGateway) -> None:
        asked.set()
        await replaced.wait()
        raise AuthFailedError("old")

    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "check_credentials", refuse)
        check = asyncio.create_task(_check(world, connection))
        await asked.wait()
    changes = {"settings": {"webhookSecret": "0123456789abcdef"}, "credentials": {}}
    path = f"/v1/integration/gateways/{connection['connectionId']}"
    assert (await world.patch(path, changes)).status == 200
    replaced.set()

    checked = (await check).json
    assert checked["error"]["code"] == "credentials_refused"
    assert checked["connection"]["health"] == {**connection["health"], "state": "ok", "error": None}


async def test_simultaneous_checks_share_a_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection has one check at a time. The other requests share the next one. [D-259]"""
    connection = await _connection(world)
    calls: list[None] = []
    check: Callable[[SandboxGateway], Awaitable[Any]] = SandboxGateway.check_credentials

    async def counted(self: SandboxGateway) -> Any:
        calls.append(None)
        await asyncio.sleep(0.2)
        return await check(self)

    monkeypatch.setattr(SandboxGateway, "check_credentials", counted)
    answers = await asyncio.gather(*(_check(world, connection) for _ in range(20)))
    assert {each.status for each in answers} == {200}
    assert len(calls) <= 3


async def test_another_accounts_connection_is_unknown(world: World) -> None:
    """Its requests do not share the checks of this account. [D-259]"""
    connection = await _connection(world)
    other = await world.another()
    own, foreign = await asyncio.gather(_check(world, connection), _check(other, connection))
    assert (own.status, foreign.status, foreign.type) == (200, 404, "engine.not_found")
