"""The history of a subscription's terms: from which cycle they apply, when they were set, and why (D-54)."""

import asyncio

import asyncpg
import pytest

from tests.support.expect import UNKNOWN_ID, problem
from tests.support.propagate_steps import propagate, publish
from tests.support.sandbox_steps import now
from tests.support.world import Json, World, columns, plan_body, rows

FIELDS = ("fromCycle", "planVersion", "customized", "reason")


async def history(world: World, subscription: Json) -> list[Json]:
    answer = await world.get(f"/v1/subscriptions/{subscription['id']}/terms/history")
    assert answer.status == 200, answer.body
    return answer.json["data"]


async def customize(world: World, subscription: Json, product: Json, **fields: Json) -> None:
    terms = {name: value for name, value in plan_body(product, **fields).items() if name != "name"}
    await world.made(f"/v1/subscriptions/{subscription['id']}/customize", terms)


@pytest.mark.faults
async def test_every_change_is_kept_with_its_cycle_and_reason(world: World):
    """[D-54 history, D-22, D-23]"""
    await world.advance("2035-01-05")
    product = await world.product(100)
    plan = await world.plan(product)
    subscription = await world.enroll(plan, chargeDay=10)
    enrolled_at = subscription["startedAt"]
    assert await history(world, subscription) == [
        {
            "fromCycle": 1,
            "planId": plan["id"],
            "planVersion": 1,
            "customized": False,
            "changedAt": enrolled_at,
            "reason": "enrolled",
        }
    ]

    await world.advance("2035-01-08")
    await publish(world, plan, await world.product(200))
    await propagate(world, plan)
    await world.advance("2035-02-20")
    customized_at = (await now(world)).isoformat()[:10]
    await customize(world, subscription, product)
    await customize(world, subscription, await world.product(300))
    await world.advance("2035-03-10")

    changes = await history(world, subscription)
    assert columns(changes, *FIELDS) == rows("""
        fromCycle | planVersion | customized | reason
        1         | 1           | False      | enrolled
        2         | 2           | False      | propagated
        3         | 2           | True       | customized
        3         | 2           | True       | customized
    """)
    assert {each["planId"] for each in changes} == {plan["id"]}
    assert changes[2]["changedAt"][:10] == customized_at
    assert columns(await world.invoices(subscription), "cycle", "totalCents") == rows("""
        cycle | total
        1     | 100
        2     | 200
        3     | 300
    """)
    assert await world.broken() == []


async def test_the_history_starts_with_the_start_cycle(world: World):
    """[D-54 history, D-58]"""
    product = await world.product(100)
    subscription = await world.enroll(await world.plan(product), startCycle=7)
    await customize(world, subscription, product)
    await world.run("generation")
    await customize(world, subscription, product, periodMonths=12)
    assert [each["fromCycle"] for each in await history(world, subscription)] == [7, 7, 8]
    assert await world.broken() == []


async def test_a_refused_change_adds_nothing(world: World):
    """[D-54 history]"""
    product = await world.product(100)
    plan = await world.plan(product)
    subscription = await world.enroll(plan)
    terms = {name: value for name, value in plan_body(product).items() if name != "name"}
    refused = await world.post(
        f"/v1/subscriptions/{subscription['id']}/customize", terms | {"maxInstallments": 2}
    )
    assert refused.status == 422
    await propagate(world, plan)
    await publish(world, plan, product)
    await propagate(world, plan, dryRun=True)
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    assert [each["reason"] for each in await history(world, subscription)] == ["enrolled"]


async def test_concurrent_changes_leave_a_history_without_gaps(world: World):
    """[D-54 history, D-23 races]"""
    product = await world.product(100)
    plan = await world.plan(product)
    subscription = await world.enroll(plan)
    await publish(world, plan, await world.product(200))
    await asyncio.gather(
        *(customize(world, subscription, product) for _ in range(3)),
        propagate(world, plan),
        world.run("generation"),
    )
    changes = await history(world, subscription)
    assert len(changes) in {4, 5}
    instants = [each["changedAt"] for each in changes]
    assert instants == sorted(instants)
    assert await world.broken() == []


async def test_unknown_malformed_and_foreign_ids_are_not_found(world: World):
    """[D-54 history, D-11, spec 5.4]"""
    other = await world.another()
    theirs = await other.enroll(await other.plan())
    for sought in (UNKNOWN_ID, theirs["id"], "1", theirs["id"].replace("-", "")):
        answer = await world.get(f"/v1/subscriptions/{sought}/terms/history")
        assert problem(answer) == (404, "engine.not_found", None)


@pytest.mark.parametrize(
    "change", ["UPDATE subscription_terms SET from_cycle = 2", "DELETE FROM subscription_terms"]
)
async def test_the_database_refuses_to_change_the_history(world: World, change: str):
    """[D-54 history]"""
    await world.enroll(await world.plan())
    with pytest.raises(asyncpg.CheckViolationError, match="its rows are kept as they are"):
        await world.sql(change)
