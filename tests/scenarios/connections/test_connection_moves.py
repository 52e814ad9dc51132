"""Move subscriptions in batches to another gateway connection (D-59).

The engine stores the move before it moves the first subscription.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.domain.credentials import Mode
from fatura.store.db import Tx
from fatura.store.subscriptions import connection_moves as stored_moves
from fatura.usecases.subscriptions import connection_moves
from tests.support.event_fields import fields, fields_of_sample
from tests.support.expect import UNKNOWN_ID
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    pay_silently,
    read,
    row_held,
    until_waiting,
)
from tests.support.world import Answer, Json, World, rows, subscription_body


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use batches of two, and let a move request return before the first batch instead of waiting up to 5 s."""
    monkeypatch.setattr(connection_moves, "BATCH", 2)
    monkeypatch.setattr(connection_moves, "WAIT_SECONDS", 0)


async def send(world: World, from_id: str, to_id: str, *, key: str = "fresh", **body: Json) -> Answer:
    path = f"/v1/integration/gateways/{from_id}/move"
    return await world.post(path, {"toConnectionId": to_id, **body}, key=key)


async def progress(world: World, from_id: str) -> Json:
    answer = await world.get(f"/v1/integration/gateways/{from_id}/move")
    assert answer.status == 200, answer.body
    return answer.json


async def other_connection(world: World, **settings: Json) -> str:
    return (await world.connect(**settings))["connectionId"]


async def set_active(world: World, connection: str, *, active: bool) -> None:
    answer = await world.patch(f"/v1/integration/gateways/{connection}", {"active": active})
    assert answer.status == 200


async def connections_of(world: World, subscriptions: Sequence[Json]) -> list[str]:
    found = [(await world.get(f"/v1/subscriptions/{each['id']}")).json for each in subscriptions]
    return [each["gatewayConnectionId"] for each in found]


async def enrolled(world: World, count: int, **terms: Json) -> tuple[str, list[Json]]:
    """Return the id of the account's first connection, and `count` subscriptions pinned to this connection."""
    plan = await world.plan(**terms)
    old = await connection_id(world)
    return old, [await world.enroll(plan, gatewayConnectionId=old) for _ in range(count)]


@pytest.mark.faults
async def test_the_next_invoices_are_charged_at_the_other_connection(world: World) -> None:
    """Existing invoices keep the old connection, and are paid through it. [D-59 move]"""
    await world.set_up_gateway(behaviour="never_pay")
    old, (subscription, canceled) = await enrolled(world, 2)
    await world.run()
    await world.made(f"/v1/subscriptions/{canceled['id']}/cancel")
    new = await other_connection(world, behaviour="never_pay")

    answer = await send(world, old, new)

    assert (answer.status, answer.json) == (
        200,
        {"toConnectionId": new, "moved": 1, "skippedCount": 0, "skipped": []},
    )
    assert await connections_of(world, [subscription, canceled]) == [new, old]
    await pay_silently(world)
    await world.advance(days=32)
    first, second = (await world.invoices(subscription))[:2]
    shown = [(await read(world, each))["charges"][0]["connectionId"] for each in (first, second)]
    assert shown == [old, new]
    assert (first["status"], second["status"]) == ("paid", "overdue")
    assert await world.broken() == []


async def test_each_moved_subscription_emits_an_event(world: World) -> None:
    """[D-59 move, D-36]"""
    old, subscriptions = await enrolled(world, 2)
    new = await other_connection(world)
    await send(world, old, new)
    events = await world.events("subscription.gateway_changed")
    assert fields(events[0]) == fields_of_sample(events[0]["type"])
    assert {each["data"]["subscription"]["id"] for each in events} == {each["id"] for each in subscriptions}
    assert {each["data"]["subscription"]["gatewayConnectionId"] for each in events} == {new}
    assert {each["data"]["previousGatewayConnectionId"] for each in events} == {old}


async def test_a_dry_run_counts_and_names_what_would_be_refused(world: World) -> None:
    """[D-59 dry run, D-21]"""
    old, (pix,) = await enrolled(world, 1)
    _, (card,) = await enrolled(world, 1, defaultPaymentMethod="card", maxInstallments=6)
    _, (boleto,) = await enrolled(world, 1, defaultPaymentMethod="boleto")
    new = await other_connection(world, methods=["pix", "card"], maxInstallments=3)
    skipped = [
        {"subscriptionId": card["id"], "reason": "installments_unsupported"},
        {"subscriptionId": boleto["id"], "reason": "payment_method_unsupported"},
    ]
    expected = {"toConnectionId": new, "moved": 1, "skippedCount": 2, "skipped": skipped}
    before = len(await world.events())

    assert (await send(world, old, new, dryRun=True)).json == expected
    assert await connections_of(world, [pix, card, boleto]) == [old] * 3
    assert len(await world.events()) == before
    assert (await world.get(f"/v1/integration/gateways/{old}/move")).status == 404

    assert (await send(world, old, new)).json == expected
    assert await connections_of(world, [pix, card, boleto]) == [new, old, old]
    assert await world.broken() == []


async def test_a_subscription_below_the_minimums_is_skipped(world: World) -> None:
    """[D-59 dry run, D-155]"""
    old, (subscription,) = await enrolled(world, 1)
    new = await other_connection(world, minAmountCents=10_000)
    for dry_run in (True, False):
        answer = (await send(world, old, new, dryRun=dry_run)).json
        assert answer["skipped"] == [
            {"subscriptionId": subscription["id"], "reason": "amount_unsupported"}
        ], answer
    assert await connections_of(world, [subscription]) == [old]
    cheaper = await other_connection(world, minAmountCents=9_990)
    assert (await send(world, old, cheaper)).json["moved"] == 1


REFUSED = rows("""
    from    | to           | status | type
    unknown | other        | 404    | engine.not_found
    own     | own          | 422    | engine.gateway_connection_not_found
    own     | unknown      | 422    | engine.gateway_connection_not_found
    own     | inactive     | 422    | engine.gateway_connection_not_found
    own     | not issuing  | 422    | engine.gateway_connection_not_found
    own     | of another   | 422    | engine.gateway_connection_not_found
    own     | failing      | 409    | engine.gateway_connection_failing
""")


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(("from_", "to", "status", "type_"), REFUSED)
async def test_a_move_to_a_connection_that_cannot_bill_is_refused(
    world: World, from_: str, to: str, status: str, type_: str, *, dry_run: bool
) -> None:
    """A connection of another mode (sandbox or live) always belongs to another account, so `REFUSED` has no row for it.
    [D-59 refused, D-160, D-21, D-44]
    """
    old, subscriptions = await enrolled(world, 1)
    other = await other_connection(world)
    ids = {"own": old, "unknown": UNKNOWN_ID, "other": other, "inactive": other, "failing": other}
    ids["not issuing"] = await other_connection(world, issuesCharges=False)
    ids["of another"] = await connection_id(await world.another(Mode.SANDBOX))
    if to == "inactive":
        await set_active(world, other, active=False)
    if to == "failing":
        await world.sql(
            """
            UPDATE connection_health SET failures = 3, failing_since = now(), next_probe_at = '2999-01-01',
                error_code = 'timeout', error_detail = 'no answer' WHERE connection_id = $1
            """,
            UUID(other),
        )

    answer = await send(world, ids[from_], ids[to], dryRun=dry_run)

    assert (answer.status, answer.type) == (int(status), type_)
    assert await connections_of(world, subscriptions) == [old]
    assert (await world.get(f"/v1/integration/gateways/{old}/move")).status == 404


async def test_subscriptions_leave_an_inactive_connection(world: World) -> None:
    """[D-59 move]"""
    old, subscriptions = await enrolled(world, 1)
    new = await other_connection(world)
    await set_active(world, old, active=False)
    assert (await send(world, old, new)).json["moved"] == 1
    assert await connections_of(world, subscriptions) == [new]


@pytest.mark.usefixtures("impatient")
async def test_a_long_move_goes_on_after_its_request(world: World) -> None:
    """[D-59 batches]"""
    old, subscriptions = await enrolled(world, 5)
    new = await other_connection(world)
    answer = await send(world, old, new)
    assert (answer.status, answer.json["moved"]) == (202, 0)
    assert (await progress(world, old))["status"] == "running"

    await world.run("propagation")

    shown = await progress(world, old)
    assert (shown["status"], shown["moved"], shown["skipped"]) == ("done", 5, [])
    assert shown["toConnectionId"] == new
    assert None not in (shown["createdAt"], shown["endedAt"])
    assert await connections_of(world, subscriptions) == [new] * 5
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_a_test_clock_waits_for_a_move(world: World) -> None:
    """[D-59 batches, D-45]"""
    old, subscriptions = await enrolled(world, 5)
    new = await other_connection(world)
    await send(world, old, new)
    await world.advance(days=1)
    assert await connections_of(world, subscriptions) == [new] * 5


@pytest.mark.usefixtures("impatient")
async def test_the_same_request_joins_and_another_is_refused(world: World) -> None:
    """[D-59 two moves, D-14]"""
    old, subscriptions = await enrolled(world, 3)
    new, third, fourth = [await other_connection(world) for _ in range(3)]
    first = await send(world, old, new, key="move-1")
    assert first.status == 202
    assert (await send(world, old, new)).status == 202, "joins"
    for from_, to in ((old, third), (new, third), (new, old), (third, old)):
        refused = await send(world, from_, to)
        assert (refused.status, refused.type) == (409, "engine.gateway_move_running"), (from_, to)
    assert (await send(world, third, new)).status == 202, "the same target"
    assert (await send(world, third, fourth, key="move-1")).type == "engine.idempotency_key_reused"
    moves = await world.sql("SELECT FROM connection_move")
    assert len(moves) == 2

    await world.run("propagation")
    again = await send(world, old, new, key="move-1")
    assert (again.status, again.json["moved"], again.headers["Idempotent-Replayed"]) == (200, 3, "true")
    assert len(await world.sql("SELECT FROM connection_move")) == 2
    assert await connections_of(world, subscriptions) == [new] * 3


async def test_two_moves_at_once_have_the_result_of_some_order(world: World) -> None:
    """[D-59 two moves]"""
    old, subscriptions = await enrolled(world, 6)
    new, third = [await other_connection(world) for _ in range(2)]
    answers = await asyncio.gather(send(world, old, new), send(world, old, third), send(world, new, old))
    assert {each.status for each in answers} <= {200, 202, 409}
    await world.run("propagation")
    assert len(set(await connections_of(world, subscriptions))) == 1
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_a_subscription_that_is_created_meanwhile_moves_too(world: World) -> None:
    """[D-59 meanwhile]"""
    old, subscriptions = await enrolled(world, 3)
    new = await other_connection(world)
    await send(world, old, new)
    late = await world.enroll(await world.plan(), gatewayConnectionId=old)
    # Simulate that the move had already passed the new subscription's id when the subscription was created.
    await world.sql("UPDATE connection_move SET visited_to = 'ffffffff-ffff-ffff-ffff-ffffffffffff'")
    await world.run("propagation")
    assert await connections_of(world, [*subscriptions, late]) == [new] * 4
    later = await world.enroll(await world.plan(), gatewayConnectionId=old)
    await world.run("propagation")
    assert await connections_of(world, [later]) == [old], "the move has ended"


async def test_a_move_waits_for_a_subscription_that_is_being_created(world: World) -> None:
    """[D-59 meanwhile]"""
    old, _ = await enrolled(world, 0)
    new, plan = await other_connection(world), await world.plan()
    body = subscription_body(plan, gatewayConnectionId=old)
    async with row_held(world, "account_counter", account_id=str(world.account_id)):
        creating = asyncio.create_task(world.post("/v1/subscriptions", body))
        await until_waiting(world)
        moving = asyncio.create_task(send(world, old, new))
        await asyncio.sleep(0.3)
        assert not moving.done()
    created = (await creating).json
    await moving
    await world.run("propagation")
    assert await connections_of(world, [created]) == [new]
    assert await world.broken() == []


async def test_a_subscription_whose_request_waited_during_a_whole_move_begins_after_it(world: World) -> None:
    """[D-59 meanwhile, D-160]"""
    old, _ = await enrolled(world, 0)
    new, plan = await other_connection(world), await world.plan()
    async with row_held(world, "plan", plan_id=plan["id"]):
        creating = asyncio.create_task(
            world.post("/v1/subscriptions", subscription_body(plan, gatewayConnectionId=old))
        )
        await until_waiting(world)
        assert (await send(world, old, new)).json["moved"] == 0
    created = (await creating).json
    assert await connections_of(world, [created]) == [old]
    (row,) = await world.sql("SELECT m.ended_at FROM connection_move m")
    assert created["startedAt"] > row["ended_at"].isoformat()
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_a_move_stops_when_its_target_becomes_inactive(world: World) -> None:
    """[D-59 stopped, D-160]"""
    old, subscriptions = await enrolled(world, 3)
    new = await other_connection(world)
    await send(world, old, new)
    await set_active(world, new, active=False)
    await world.run("propagation")
    shown = await progress(world, old)
    assert (shown["status"], shown["moved"], shown["skipped"]) == ("stopped", 0, [])
    assert await connections_of(world, subscriptions) == [old] * 3

    await set_active(world, new, active=True)
    await send(world, old, new)
    await world.run("propagation")
    assert await connections_of(world, subscriptions) == [new] * 3


@pytest.mark.usefixtures("impatient")
async def test_the_old_connection_may_become_inactive_meanwhile(world: World) -> None:
    """[D-59 meanwhile]"""
    old, subscriptions = await enrolled(world, 3)
    new = await other_connection(world)
    await send(world, old, new)
    await set_active(world, old, active=False)
    await world.run("propagation")
    assert await connections_of(world, subscriptions) == [new] * 3


async def test_a_move_waits_for_the_billing_run(world: World) -> None:
    """The test locks the subscription, as a billing run does. [D-59 meanwhile]"""
    old, (subscription,) = await enrolled(world, 1)
    new = await other_connection(world)
    async with row_held(world, "subscription", subscription_id=subscription["id"]):
        moving = asyncio.create_task(send(world, old, new))
        await until_waiting(world)
        assert await world.run("generation") == 0
    assert (await moving).json["moved"] == 1
    await world.run("generation", "issuance")
    (invoice,) = await world.invoices(subscription)
    assert [each["connectionId"] for each in await charges(world, invoice)] == [new]


async def test_a_subscription_whose_move_fails_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-59 failed]"""
    old, subscriptions = await enrolled(world, 4)
    new = await other_connection(world)
    faulty, pin = UUID(sorted(each["id"] for each in subscriptions)[1]), stored_moves.pin

    async def failing(tx: Tx, to: UUID, ids: Sequence[UUID]) -> None:
        if faulty in ids:
            raise ZeroDivisionError
        await pin(tx, to, ids)

    monkeypatch.setattr(stored_moves, "pin", failing)
    answer = await send(world, old, new)
    assert (answer.json["moved"], answer.json["skipped"]) == (
        3,
        [{"subscriptionId": str(faulty), "reason": "failed"}],
    )
    assert await world.broken() == []


async def test_a_connection_whose_subscriptions_were_never_moved_has_no_progress(world: World) -> None:
    """[D-59 progress, D-160]"""
    for connection in (await connection_id(world), UNKNOWN_ID):
        answer = await world.get(f"/v1/integration/gateways/{connection}/move")
        assert (answer.status, answer.type) == (404, "engine.not_found")


async def test_the_refusal_of_another_provider_account_names_the_move(world: World) -> None:
    """[D-59]"""
    connection = await connection_id(world)
    path = f"/v1/integration/gateways/{connection}"
    answer = await world.patch(path, {"settings": {"providerAccount": "second"}})
    assert answer.type == "engine.gateway_account_changed"
    assert f"POST {path}/move" in answer.json["detail"]
