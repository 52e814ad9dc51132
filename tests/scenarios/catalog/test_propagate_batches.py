"""Propagation moves subscribers in batches to a stored version, and continues after the request has ended (D-54)."""

import asyncio
from collections.abc import Sequence

import pytest

from fatura.usecases.catalog import propagation
from tests.scenarios.subscriptions.test_terms_history import customize, history
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.expect import UNKNOWN_ID, problem
from tests.support.propagate_steps import propagate, publish
from tests.support.sandbox_steps import connection_id, row_held, until_waiting
from tests.support.world import Answer, Json, World, item


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "BATCH", 2)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use batches of two subscribers, and let a request return before the first batch instead of waiting up to 5 s."""
    monkeypatch.setattr(propagation, "BATCH", 2)
    monkeypatch.setattr(propagation, "WAIT_SECONDS", 0)


async def send(world: World, plan: Json, body: Json | None = None, *, key: str = "fresh") -> Answer:
    return await world.post(f"/v1/plans/{plan['id']}/propagate", body or {}, key=key)


async def progress(world: World, plan: Json) -> Json:
    answer = await world.get(f"/v1/plans/{plan['id']}/propagation")
    assert answer.status == 200, answer.body
    return answer.json


async def versions(world: World, subscriptions: Sequence[Json]) -> list[int]:
    found = [(await world.get(f"/v1/subscriptions/{each['id']}")).json for each in subscriptions]
    return [each["planVersion"] for each in found]


async def enrolled(world: World, count: int) -> tuple[Json, list[Json]]:
    """Return a plan and `count` subscriptions to its version 1, which costs 100 cents. Version 2 costs 200 cents."""
    plan = await world.plan(await world.product(100))
    subscriptions = [await world.enroll(plan) for _ in range(count)]
    await publish(world, plan, await world.product(200))
    return plan, subscriptions


async def test_each_moved_subscriber_emits_its_new_terms(world: World):
    """[D-54 terms_changed, D-36]"""
    await world.advance("2035-01-05")
    plan, (subscription, own) = await enrolled(world, 2)
    await world.run("generation")
    await customize(world, own, await world.product(7))
    before = len(await world.events())

    await propagate(world, plan)

    [event] = (await world.events())[before:]
    assert event["type"] == "subscription.terms_changed"
    assert event["data"] == {
        "subscription": (await world.get(f"/v1/subscriptions/{subscription['id']}")).json,
        "change": (await history(world, subscription))[-1],
    }
    change = event["data"]["change"]
    assert (change["fromCycle"], change["planVersion"], change["reason"]) == (2, 2, "propagated")
    assert change["changedAt"] == event["createdAt"]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
async def test_batches_add_up_to_the_answer_of_the_dry_run(world: World, count: int):
    """[D-54 target, D-23 dry run, D-23 cents, D-23 skipped]"""
    pix_only = (await world.connect(methods=["pix"]))["connectionId"]
    wide = await connection_id(world)
    plan = await world.plan(item(await world.product(1000), (50, 1, 1)))
    for number in range(count):
        await world.enroll(plan, gatewayConnectionId=(wide, pix_only)[number % 2])
    await publish(world, plan, await world.product(700), defaultPaymentMethod="boleto")
    dry = await propagate(world, plan, dryRun=True)
    assert await propagate(world, plan) == dry
    assert (dry["moved"], len(dry["skipped"])) == ((count + 1) // 2, count // 2)
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_workers_go_on_after_the_request_was_answered(world: World):
    """[D-54 progress, D-54 terms_changed]"""
    plan, subscriptions = await enrolled(world, 5)

    answer = await send(world, plan)

    assert answer.status == 202
    assert answer.json["moved"] < 5
    running = await progress(world, plan)
    assert (running["status"], running["moved"], running["endedAt"]) == (
        "running",
        answer.json["moved"],
        None,
    )
    await world.run("propagation")
    done = await progress(world, plan)
    assert done == running | {
        "status": "done",
        "moved": 5,
        "nextCycleCentsBefore": 500,
        "nextCycleCentsAfter": 1000,
        "endedAt": done["endedAt"],
    }
    assert done["endedAt"] >= done["createdAt"]
    assert await versions(world, subscriptions) == [2] * 5
    assert len(await world.events("subscription.terms_changed")) == 5
    assert await world.run("propagation") == 0
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.usefixtures("impatient")
async def test_the_test_clock_waits_for_the_propagation(world: World):
    """If the clock did not wait, the engine could bill subscribers on old terms. [D-54 target, D-45]"""
    await world.advance("2035-01-05")
    plan = await world.plan(await world.product(100))
    subscriptions = [await world.enroll(plan, chargeDay=20) for _ in range(5)]
    await publish(world, plan, await world.product(200))
    assert (await send(world, plan)).status == 202
    await world.advance("2035-01-20")
    assert [each["totalCents"] for each in await world.invoices()] == [200] * 5
    assert await versions(world, subscriptions) == [2] * 5
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_subscribers_canceled_or_customized_meanwhile_do_not_move(world: World):
    """The subscriptions change before the batch that would select them. [D-54 meanwhile, D-23 races]"""
    plan, subscriptions = await enrolled(world, 6)
    assert (await send(world, plan)).status == 202
    left = [
        each
        for each, version in zip(subscriptions, await versions(world, subscriptions), strict=True)
        if version == 1
    ]
    assert len(left) >= 2
    await world.made(f"/v1/subscriptions/{left[0]['id']}/cancel")
    await customize(world, left[1], await world.product(7))
    billed = await world.run("generation")
    assert billed == 5

    await world.run("propagation")

    assert (await progress(world, plan))["moved"] == 4
    assert await versions(world, left[:2]) == [1, 1]
    assert [each["reason"] for each in await history(world, left[1])] == ["enrolled", "customized"]
    assert len(await world.events("subscription.terms_changed")) == 4
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_a_newer_version_replaces_the_target(world: World):
    """[D-54 replaced, D-141]"""
    plan, subscriptions = await enrolled(world, 5)
    late = await world.enroll(plan)
    assert (await send(world, plan)).status == 202
    first = await progress(world, plan)
    await publish(world, plan, await world.product(300))
    newest = await world.enroll(plan)
    assert await versions(world, [late, newest]) == [2, 3]

    await send(world, plan)
    await world.run("propagation")

    second = await progress(world, plan)
    assert (second["status"], second["version"], second["moved"]) == ("done", 3, 6)
    assert await versions(world, [*subscriptions, late, newest]) == [3] * 7
    [row] = await world.sql(
        "SELECT status, moved, ended_at IS NOT NULL AS ended FROM propagation WHERE propagation_id = $1",
        first["id"],
    )
    assert tuple(row) == ("replaced", first["moved"], True)
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_publishing_and_archiving_do_not_change_a_running_target(world: World):
    """[D-54 target, D-23]"""
    plan, subscriptions = await enrolled(world, 5)
    assert (await send(world, plan)).status == 202
    await publish(world, plan, await world.product(300))
    newest = await world.enroll(plan)
    await world.made(f"/v1/plans/{plan['id']}/archive")
    await world.run("propagation")
    assert await versions(world, [*subscriptions, newest]) == [2, 2, 2, 2, 2, 3]
    assert await world.broken() == []


@pytest.mark.usefixtures("impatient")
async def test_the_same_request_joins_the_running_propagation(world: World):
    """[D-54 replaced, D-141]"""
    plan, _ = await enrolled(world, 5)
    await send(world, plan)
    first = await progress(world, plan)
    await send(world, plan)
    assert (await progress(world, plan))["id"] == first["id"]


@pytest.mark.usefixtures("impatient")
async def test_a_request_that_selects_fewer_subscribers_waits_for_the_running_one(world: World):
    """A propagation of all subscribers is running, and a second request selects only one version's subscribers.

    If the second request replaced the propagation, subscribers with other versions would not be moved.
    [D-54 replaced, D-141]
    """
    plan, subscriptions = await enrolled(world, 5)
    assert (await send(world, plan)).status == 202
    refused = await send(world, plan, {"fromVersion": 1})
    assert (refused.status, refused.type) == (409, "engine.propagation_running")
    await world.run("propagation")
    assert (await send(world, plan, {"fromVersion": 1})).status in {200, 202}
    await world.run("propagation")
    assert await versions(world, subscriptions) == [2] * 5


@pytest.mark.usefixtures("impatient")
async def test_a_repeat_with_its_key_answers_the_progress_of_its_own_propagation(world: World):
    """The repeat starts no other propagation, although the plan has a newer version. [D-54 repeat, D-14]"""
    plan, subscriptions = await enrolled(world, 5)
    assert (await send(world, plan, key="move")).status == 202
    await world.run("propagation")
    await publish(world, plan, await world.product(300))

    again = await send(world, plan, key="move")

    assert (again.status, again.json["version"], again.json["moved"]) == (200, 2, 5)
    assert again.headers["idempotent-replayed"] == "true"
    assert await versions(world, subscriptions) == [2] * 5
    assert (await send(world, plan, key="move")).body == again.body


async def test_a_repeat_of_a_lost_answer_waits_for_the_same_propagation(world: World):
    """[D-54 repeat, D-14]"""
    plan, subscriptions = await enrolled(world, 3)
    async with row_held(world, "subscription", subscription_id=subscriptions[1]["id"]):
        first = asyncio.create_task(send(world, plan, key="move"))
        await until_waiting(world)
        again = asyncio.create_task(send(world, plan, key="move"))
        await asyncio.sleep(0.2)
    answers = await asyncio.gather(first, again)
    assert answers[0].body == answers[1].body
    assert len(await world.sql("SELECT FROM propagation")) == 1
    assert await world.broken() == []


async def test_a_subscriber_held_for_long_does_not_fail_the_request(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """If a batch waits too long for a lock, the API answers 202, not 503, because the propagation is stored.
    [D-54 progress]
    """
    monkeypatch.setattr(propagation, "WAIT_SECONDS", 1)
    plan, subscriptions = await enrolled(world, 1)
    async with row_held(world, "subscription", subscription_id=subscriptions[0]["id"]):
        answer = await send(world, plan)
    assert (answer.status, answer.json["moved"]) == (202, 0)
    await world.run("propagation")
    assert await versions(world, subscriptions) == [2]


async def test_a_subscriber_that_cannot_be_moved_does_not_stop_the_others(world: World):
    """The test gives one subscriber a plan version without items, which makes the move fail. [D-54 failed]"""
    plan, subscriptions = await enrolled(world, 4)
    await world.sql(
        """
        INSERT INTO plan_version (account_id, plan_version_id, plan_id, version, name, period_months,
            default_payment_method, max_installments, created_at)
        SELECT account_id, gen_random_uuid(), plan_id, 0, 'Empty', 1, 'pix', 1, now() FROM plan
        """
    )
    await world.sql(
        """
        UPDATE subscription SET plan_version_id = (SELECT plan_version_id FROM plan_version WHERE version = 0)
        WHERE subscription_id = $1
        """,
        subscriptions[2]["id"],
    )

    answer = await propagate(world, plan)

    assert answer["moved"] == 3
    assert answer["skipped"] == [{"subscriptionId": subscriptions[2]["id"], "reason": "failed"}]
    assert await versions(world, subscriptions) == [2, 2, 1, 2]


async def test_a_subscriber_that_cannot_be_read_does_not_stop_the_others(world: World):
    """The test removes one subscriber's payment method, so that the row cannot be read. [D-54 failed]"""
    plan, subscriptions = await enrolled(world, 4)
    await world.sql("ALTER TABLE subscription ALTER COLUMN payment_method DROP NOT NULL")
    await world.sql(
        "UPDATE subscription SET payment_method = NULL WHERE subscription_id = $1", subscriptions[2]["id"]
    )

    answer = await propagate(world, plan)

    assert answer["moved"] == 3
    assert answer["skipped"] == [{"subscriptionId": subscriptions[2]["id"], "reason": "failed"}]


async def test_unknown_foreign_and_never_propagated_plans_have_no_progress(world: World):
    """[D-54 progress, D-141, D-11, spec 5.4]"""
    other = await world.another()
    theirs, never = await other.plan(), await world.plan()
    for sought in (UNKNOWN_ID, theirs["id"], never["id"], "1"):
        answer = await world.get(f"/v1/plans/{sought}/propagation")
        assert problem(answer) == (404, "engine.not_found", None)


async def test_a_batch_locks_only_its_own_subscribers(world: World):
    """A subscriber of a later batch can be canceled while the first batch waits for a lock. [D-54 target]"""
    plan = await world.plan(await world.product(100))
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], propagation.BATCH + 10)
    await publish(world, plan, await world.product(200))
    ids = [
        str(row["subscription_id"])
        for row in await world.sql("SELECT subscription_id FROM subscription ORDER BY subscription_id")
    ]
    async with row_held(world, "subscription", subscription_id=ids[0]):
        moving = asyncio.create_task(propagate(world, plan))
        await until_waiting(world)
        await world.made(f"/v1/subscriptions/{ids[-1]}/cancel")
        await world.made(f"/v1/plans/{plan['id']}/archive")
    assert (await moving)["moved"] == propagation.BATCH + 9
    assert await world.broken() == ["due_work_is_claimed_in_an_hour"], "the bulk subscriptions are due"
