"""Limits on the number of an account's connections, and on the requests that wait for gateways (D-175, D-177)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fatura.domain.errors import EngineError
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import connection_id, fail_for, issued_invoice, read, ready_invoice
from tests.support.world import Answer, Json, World, eventually

Make = Callable[[World], Awaitable[Json]]


async def _paid_invoice(world: World) -> Json:
    invoice = await issued_invoice(world)
    await world.set_up_gateway(behaviour="pay_at_once")
    await world.run("reconciliation")
    return await read(world, invoice)


async def _check_credentials(world: World) -> Answer:
    return await world.patch(f"/v1/integration/gateways/{await connection_id(world)}", {"credentials": {}})


def _is_full(world: World) -> bool:
    try:
        world.deps.gateway_requests.check(world.account_id, 1)
    except EngineError:
        return True
    return False


@pytest.mark.parametrize(
    ("make", "action", "body"),
    [
        (unpaid_invoice, "cancel", None),
        (unpaid_invoice, "reissue", {}),
        (unpaid_invoice, "payments", {"method": "cash"}),
        (_paid_invoice, "refunds", {}),
        (ready_invoice, "retry-issuance", None),
        (unpaid_invoice, None, None),
    ],
)
async def test_a_hanging_gateway_holds_a_limited_number_of_requests(
    world: World, make: Make, action: str | None, body: Json
) -> None:
    """A request above the limit is refused immediately and changes nothing.

    Requests that call no gateway are still served.
    [D-175]
    """
    first, invoice = await make(world), await make(world)
    world.deps.gateway_requests.most = 1
    await fail_for(world, "all", "hang", seconds=600)

    async def ask(invoice: Json) -> Answer:
        if action is None:
            return await _check_credentials(world)
        return await world.post(f"/v1/invoices/{invoice['id']}/{action}", body)

    waiting = asyncio.create_task(ask(first))
    await eventually(lambda: waiting.done() or _is_full(world))
    await asyncio.sleep(0.5)  # a request that calls no gateway would end within this time
    assert not waiting.done(), waiting.result().body
    before = await read(world, invoice)

    async with asyncio.timeout(5):
        for refused in (await ask(invoice), await _check_credentials(world)):
            assert (refused.status, refused.type) == (429, "engine.rate_limited"), refused.body
            assert refused.headers["retry-after"] == "10"
        assert await read(world, invoice) == before
        path = f"/v1/integration/gateways/{await connection_id(world)}"
        assert (await world.patch(path, {"label": "Main", "active": False})).status == 200
        assert (await world.patch(path, {"active": True})).status == 200
        other = await world.another()
        theirs = f"/v1/integration/gateways/{await connection_id(other)}"
        assert (await other.patch(theirs, {"credentials": {}})).status == 200

    waiting.cancel()
    await asyncio.wait([waiting])
    await world.delete(f"/v1/sandbox/faults?connectionId={await connection_id(world)}")
    assert (await _check_credentials(world)).status == 200


async def test_requests_that_call_no_gateway_need_no_place(world: World) -> None:
    """While the account is at its limit, Fatura serves repeats, part payments, refunds of manual payments, and the
    cancellation of an invoice without a charge. [D-175]
    """
    paid = await _paid_invoice(world)
    reissued, canceled, received, partly = [await unpaid_invoice(world) for _ in range(4)]
    waiting = await ready_invoice(world)

    async def ask(invoice: Json, action: str, body: Json, key: str = "fresh") -> Answer:
        return await world.post(f"/v1/invoices/{invoice['id']}/{action}", body, key=key)

    repeated = [
        (reissued, "reissue", {}, "a"),
        (canceled, "cancel", None, "b"),
        (received, "payments", {"method": "cash"}, "c"),
        (paid, "refunds", {}, "d"),
    ]
    first = [await ask(*each) for each in repeated]
    assert {each.status for each in first} == {200}
    world.deps.gateway_requests.most = 0

    again = [await ask(*each) for each in repeated]
    others = [
        await ask(partly, "payments", {"method": "cash", "amountCents": 4000}),
        await ask(partly, "refunds", {"amountCents": 1000}),
        await ask(waiting, "cancel", None),
    ]

    assert [(each.status, each.body) for each in again] == [(200, each.body) for each in first]
    assert [each.status for each in others] == [200, 200, 200], [each.body for each in others]
    refused = await ask(partly, "cancel", None, "e")
    assert (refused.status, refused.type) == (429, "engine.rate_limited")
    world.deps.gateway_requests.most = 1
    assert (await ask(partly, "cancel", None, "e")).json["status"] == "canceled"
    assert await world.broken() == []


async def test_hanging_gateways_of_many_accounts_hold_a_part_of_all_requests(world: World) -> None:
    """Requests above the limit are refused immediately. Requests that call no gateway are still served. [D-175]"""
    other = await world.another()
    world.deps.gateway_requests.most_in_all = 1
    world.deps.gateway_requests.always_allowed = 0
    await fail_for(world, "all", "hang", seconds=600)
    waiting = asyncio.create_task(_check_credentials(world))
    await eventually(lambda: waiting.done() or _is_full(world))

    async with asyncio.timeout(5):
        path = f"/v1/integration/gateways/{await connection_id(other)}"
        refused = await other.patch(path, {"credentials": {}})
        assert (refused.status, refused.type) == (503, "engine.unavailable"), refused.body
        assert refused.headers["retry-after"] == "10"
        assert (await other.patch(path, {"label": "Main"})).status == 200

    waiting.cancel()
    await asyncio.wait([waiting])


async def test_an_account_has_a_limited_number_of_connections(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Concurrent requests do not exceed the limit. [D-177]"""
    monkeypatch.setattr("fatura.usecases.connections.gateway_connections.MAX_CONNECTIONS", 3)
    body = {"provider": "sandbox", "credentials": {}, "settings": {}}

    made = await asyncio.gather(*(world.post("/v1/integration/gateways", body) for _ in range(6)))

    assert sorted(answer.status for answer in made) == [201, 201, 422, 422, 422, 422]
    refused = next(answer for answer in made if answer.status == 422)
    assert (refused.type, refused.json["meta"]) == ("engine.too_many_connections", {"limit": 3})
    assert len((await world.get("/v1/integration")).json["gateways"]) == 3
    assert (await (await world.another()).connect())["active"]
