"""Canceling a subscription (spec 3.2, 4.4)."""

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.support.expect import UNKNOWN_ID, everything, problem
from tests.support.sandbox_steps import row_held, until_waiting
from tests.support.world import World, columns, plan_body, rows


async def test_canceling_returns_the_subscription_with_its_commitment(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/cancel 200, spec 3.2 subscription canceled, D-36]"""
    subscription = await world.enroll(await world.plan(commitmentCycles=12))
    answer = await world.post(f"/v1/subscriptions/{subscription['id']}/cancel")
    canceled = answer.json
    assert answer.status == 200
    assert canceled == subscription | {
        "status": "canceled",
        "canceledAt": canceled["canceledAt"],
        "commitment": {"cycles": 12, "completed": 0, "fulfilled": False},
    }
    assert canceled["canceledAt"] >= subscription["startedAt"]
    read = (await world.get(f"/v1/subscriptions/{subscription['id']}")).json
    assert read == {name: value for name, value in canceled.items() if name != "commitment"}
    [event] = await world.events("subscription.canceled")
    assert event["data"] == {"subscription": canceled}


@pytest.mark.faults
@pytest.mark.parametrize(
    ("agreed", "billed", "block"),
    [
        (None, 0, {"cycles": None, "completed": 0, "fulfilled": True}),
        (None, 2, {"cycles": None, "completed": 2, "fulfilled": True}),
        (1, 0, {"cycles": 1, "completed": 0, "fulfilled": False}),
        (3, 2, {"cycles": 3, "completed": 2, "fulfilled": False}),
        (2, 2, {"cycles": 2, "completed": 2, "fulfilled": True}),
        (1, 2, {"cycles": 1, "completed": 2, "fulfilled": True}),
    ],
)
async def test_the_commitment_compares_cycles_billed_with_cycles_agreed(world: World, agreed, billed, block):
    """[D-23a, spec 4.4 commitment, spec 2.4 cycleCount]"""
    # A billed cycle counts towards the commitment even if its invoice is unpaid.
    await world.set_up_gateway(behaviour="never_pay")
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(commitmentCycles=agreed), firstChargeDate="2035-02-10")
    if billed:
        await world.advance(f"2035-0{1 + billed}-10")
    answer = await world.post(f"/v1/subscriptions/{subscription['id']}/cancel")
    assert (answer.status, answer.json["commitment"], answer.json["cycleCount"]) == (200, block, billed)


async def test_a_canceled_subscriptions_last_invoice_is_issued_and_paid(world: World):
    """[spec 3.2 subscription canceled]"""
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=10)
    await world.advance("2035-01-07")
    assert columns(await world.invoices(), "status") == [("issued",)]
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")

    await world.advance("2035-06-01")
    assert columns(await world.invoices(), "cycle", "status", "dueDate") == [("1", "paid", "2035-01-10")]
    assert await world.broken() == []


async def test_a_subscription_canceled_before_its_first_cycle_is_never_billed(world: World):
    """[spec 3.2 subscription canceled]"""
    subscription = await world.enroll(await world.plan())
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    await world.advance(days=60)
    assert await world.invoices() == []


async def test_a_canceled_subscription_refuses_every_change(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/cancel 409, spec 3.2 subscription over]
    [spec 4.4 GET /v1/subscriptions/{subscriptionId}/preview 409, spec 7 409 canceled subscription]
    """
    product = await world.product()
    path = f"/v1/subscriptions/{(await world.enroll(await world.plan(product)))['id']}"
    await world.made(f"{path}/cancel")
    before = await everything(world)
    terms = {name: value for name, value in plan_body(product).items() if name != "name"}
    refused = [
        await world.post(f"{path}/cancel"),
        await world.post(f"{path}/customize", terms),
        await world.get(f"{path}/preview"),
    ]
    assert [problem(answer) for answer in refused] == [(409, "engine.subscription_canceled", None)] * 3
    assert await everything(world) == before


async def test_subscriptions_cannot_be_patched_replaced_or_deleted(world: World):
    """[spec 3.2 subscription over]"""
    subscription = await world.enroll(await world.plan())
    for method in ("PATCH", "PUT", "DELETE"):
        answer = await world.call(method, f"/v1/subscriptions/{subscription['id']}", {"status": "active"})
        assert problem(answer)[:2] == (405, "engine.method_not_allowed")
    assert await world.all("/v1/subscriptions") == [subscription]


async def test_unknown_malformed_and_foreign_ids_are_not_found(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/cancel 404]"""
    other = await world.another()
    theirs = await other.enroll(await other.plan())
    for sought in (UNKNOWN_ID, theirs["id"], "x"):
        answer = await world.post(f"/v1/subscriptions/{sought}/cancel")
        assert problem(answer) == (404, "engine.not_found", None)
    assert (await other.get(f"/v1/subscriptions/{theirs['id']}")).json == theirs


async def test_concurrent_cancellations_succeed_once(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/cancel 409]"""
    path = f"/v1/subscriptions/{(await world.enroll(await world.plan()))['id']}/cancel"
    answers = await asyncio.gather(*(world.post(path) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    assert len(await world.events("subscription.canceled")) == 1


async def test_a_body_other_than_an_empty_object_is_refused(world: World):
    """[D-11]"""
    subscription = await world.enroll(await world.plan())
    path = f"/v1/subscriptions/{subscription['id']}"
    refused = await world.post(f"{path}/cancel", {"reason": "moved away"})
    assert problem(refused)[:2] == (400, "engine.invalid_request")
    assert (await world.get(path)).json == subscription
    assert (await world.post(f"{path}/cancel", {})).status == 200


async def test_a_cancellation_before_the_billing_run_prevents_the_invoice(world: World):
    """Adapted from getlago/lago-api#958. [spec 3.2 subscription canceled]"""
    first, second = [await world.enroll(await world.plan()) for _ in range(2)]
    await asyncio.gather(world.post(f"/v1/subscriptions/{first['id']}/cancel"), world.run("generation"))
    await world.run()
    assert columns(await world.invoices(second), "cycle") == rows("c\n1")
    assert len(await world.invoices(first)) <= 1
    assert await world.broken() == []


async def test_a_cancellation_that_waited_for_a_lock_is_dated_after_the_wait(world: World):
    """[spec 3.2 subscription canceled]"""
    subscription = await world.enroll(await world.plan())
    async with row_held(world, "subscription", subscription_id=subscription["id"]):
        canceling = asyncio.create_task(world.post(f"/v1/subscriptions/{subscription['id']}/cancel"))
        await until_waiting(world)
        await world.sql("UPDATE account SET clock_offset = clock_offset + interval '2 days'")

    canceled = (await canceling).json
    started = datetime.fromisoformat(subscription["startedAt"])
    assert datetime.fromisoformat(canceled["canceledAt"]) >= started + timedelta(days=2)
