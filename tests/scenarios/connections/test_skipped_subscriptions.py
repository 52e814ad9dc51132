"""The answer to a move request lists a limited number of skipped subscriptions (D-59, D-180).

For each connection, the engine stores only the skipped subscriptions of the newest move.
"""

from uuid import UUID

import pytest

from fatura.store.db import Tx
from fatura.store.subscriptions import connection_moves as stored_moves
from tests.scenarios.connections.test_connection_moves import enrolled, other_connection, progress, send
from tests.support.world import World


async def test_an_answer_lists_the_first_skipped_subscriptions_and_counts_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-180, D-59 dry run, D-59 progress]"""
    monkeypatch.setattr(stored_moves, "SKIPPED_SHOWN", 2)
    old, subscriptions = await enrolled(world, 3)
    new = await other_connection(world, methods=["card"])
    first = sorted(each["id"] for each in subscriptions)[:2]
    for answer in (
        (await send(world, old, new, dryRun=True)).json,
        (await send(world, old, new)).json,
        await progress(world, old),
    ):
        assert [each["subscriptionId"] for each in answer["skipped"]] == first
        assert answer["skippedCount"] == 3


async def test_a_dry_run_stores_nothing(world: World) -> None:
    """[D-180, D-59 dry run]"""
    old, _ = await enrolled(world, 1)
    new = await other_connection(world)
    before = await world.sql("SELECT FROM idempotency_key")
    for _ in range(2):
        answer = await send(world, old, new, key="dry", dryRun=True)
        assert (answer.status, answer.json["moved"]) == (200, 1)
        assert "idempotent-replayed" not in answer.headers
    assert await world.sql("SELECT FROM idempotency_key") == before
    assert (await send(world, old, new, key="dry")).json["moved"] == 1


async def test_a_move_deletes_the_skipped_subscriptions_of_the_move_before(world: World) -> None:
    """[D-180 earlier]"""
    old, _ = await enrolled(world, 2)
    new = await other_connection(world, methods=["card"])
    for key in ("first", "second", "third"):
        answer = await send(world, old, new, key=key)
        assert (answer.json["skippedCount"], len(answer.json["skipped"])) == (2, 2)
    assert len(await world.sql("SELECT FROM connection_move_skip")) == 2
    again = await send(world, old, new, key="first")
    assert (again.json["skippedCount"], again.json["skipped"]) == (2, [])
    assert await world.broken() == []


async def test_the_answer_of_a_move_shows_one_state(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the API reads the skipped subscriptions, another transaction adds one. [D-122, D-59 move]"""
    old, (subscription,) = await enrolled(world, 1)
    new, skipped_by = await other_connection(world), stored_moves.skipped_by

    async def skip_and_read(tx: Tx, move_id: UUID) -> object:
        await world.sql(
            "INSERT INTO connection_move_skip SELECT account_id, connection_move_id, $1, 'failed' FROM connection_move",
            subscription["id"],
        )
        return await skipped_by(tx, move_id)

    monkeypatch.setattr(stored_moves, "skipped_by", skip_and_read)
    assert (await send(world, old, new)).json == {
        "toConnectionId": new,
        "moved": 1,
        "skippedCount": 0,
        "skipped": [],
    }


async def test_a_subscription_that_cannot_be_read_is_skipped(world: World) -> None:
    """The test removes one subscription's payment method, so that the row cannot be read. [D-59 failed]"""
    old, subscriptions = await enrolled(world, 4)
    new = await other_connection(world)
    faulty = subscriptions[1]["id"]
    await world.sql("ALTER TABLE subscription ALTER COLUMN payment_method DROP NOT NULL")
    await world.sql(
        "UPDATE subscription SET payment_method = NULL WHERE subscription_id = $1::text::uuid", faulty
    )

    answer = await send(world, old, new)

    assert (answer.json["moved"], answer.json["skipped"]) == (
        3,
        [{"subscriptionId": faulty, "reason": "failed"}],
    )
