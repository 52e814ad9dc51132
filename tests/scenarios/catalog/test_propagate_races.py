"""Propagation to many subscribers, and propagation during billing runs and other requests (D-23)."""

import asyncio
import tracemalloc

import pytest

from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.propagate_steps import propagate, publish
from tests.support.sandbox_steps import reads_held, row_held, until_waiting
from tests.support.world import Answer, Json, World, item, plan_body, subscription_body


async def test_propagation_waits_for_the_billing_run(world: World):
    """The test locks the subscription, as a billing run does.

    The propagation waits for the lock. Another billing run skips the locked subscription. [D-23 races]
    """
    plan = await world.plan(await world.product(100))
    subscription = await world.enroll(plan)
    await publish(world, plan, await world.product(900), defaultPaymentMethod="boleto")
    async with row_held(world, "subscription", subscription_id=subscription["id"]):
        moving = asyncio.create_task(propagate(world, plan))
        await until_waiting(world)
        assert await world.run("generation") == 0
    assert (await moving)["moved"] == 1
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    assert (invoice["totalCents"], invoice["paymentMethod"]) == (900, "boleto")


async def test_subscriptions_canceled_or_customized_during_the_wait_do_not_move(world: World):
    """[D-23 races]"""
    product = await world.product(100)
    plan = await world.plan(product)
    first, second, third = [await world.enroll(plan) for _ in range(3)]
    await publish(world, plan, await world.product(900))
    terms = {name: value for name, value in plan_body(product).items() if name != "name"}
    async with row_held(world, "subscription", subscription_id=first["id"]):
        moving = asyncio.create_task(propagate(world, plan))
        await until_waiting(world)
        await world.made(f"/v1/subscriptions/{second['id']}/cancel")
        await world.made(f"/v1/subscriptions/{third['id']}/customize", terms)

    answer = await moving
    assert (answer["moved"], answer["nextCycleCentsBefore"], answer["nextCycleCentsAfter"]) == (1, 100, 900)
    shown = [(await world.get(f"/v1/subscriptions/{each['id']}")).json for each in (first, second, third)]
    assert [each["planVersion"] for each in shown] == [2, 1, 1]
    assert [each["customized"] for each in shown] == [False, False, True]


async def test_publishing_does_not_wait_for_a_running_propagation(world: World):
    """The propagation moves subscribers to the version that was current when it began. [D-23 races, D-54 target]"""
    plan = await world.plan()
    subscription = await world.enroll(plan)
    await publish(world, plan, await world.product(2))
    async with row_held(world, "subscription", subscription_id=subscription["id"]):
        moving = asyncio.create_task(propagate(world, plan))
        await until_waiting(world)
        assert (await publish(world, plan, await world.product(3)))["version"] == 3
    assert (await moving)["version"] == 2
    assert (await world.get(f"/v1/subscriptions/{subscription['id']}")).json["planVersion"] == 2


async def test_concurrent_changes_leave_whole_terms_on_each_invoice(world: World):
    """[D-23 races, D-28]"""
    products = {100: await world.product(100), 5000: await world.product(5000), 70: await world.product(70)}
    plan = await world.plan(products[100])
    subscriptions = [await world.enroll(plan) for _ in range(12)]
    path = f"/v1/plans/{plan['id']}"
    private = {
        "periodMonths": 3,
        "defaultPaymentMethod": "card",
        "maxInstallments": 3,
        "items": [item(products[70])],
    }
    calls = [
        world.put(path, plan_body(products[5000], defaultPaymentMethod="boleto")),
        *(world.post(f"{path}/propagate", {"dryRun": place == 1}) for place in range(4)),
        *(world.post("/v1/subscriptions", subscription_body(plan)) for _ in range(4)),
        *(world.post(f"/v1/subscriptions/{each['id']}/cancel") for each in subscriptions[:3]),
        *(world.post(f"/v1/subscriptions/{each['id']}/customize", private) for each in subscriptions[3:6]),
    ]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.gather(*(world.run("generation") for _ in range(3)))
    answers: list[Answer] = await asyncio.gather(*tasks)
    # on a busy machine, a propagation may take longer than its request waits (D-54)
    assert {answer.status for answer in answers} <= {200, 201, 202}
    await propagate(world, plan)
    await world.run()

    whole = {(100, "pix", None), (5000, "boleto", None), (210, "card", 3)}
    for each in await world.all("/v1/subscriptions"):
        billed = [_terms(one) for one in await world.invoices(each)]
        assert len(billed) <= 1
        assert set(billed) <= whole
        if each["status"] == "active" and not each["customized"]:
            assert (each["planVersion"], each["paymentMethod"]) == (2, "boleto")
    assert await world.broken() == []


def _terms(invoice: Json) -> tuple[int, str, int | None]:
    return invoice["totalCents"], invoice["paymentMethod"], invoice["installments"]


@pytest.mark.faults
async def test_ten_thousand_subscribers_move_in_the_memory_of_a_batch(world: World):
    """[D-23, D-23 cents, D-54 target]"""
    plan = await world.plan(item(await world.product(333), (1, 1, 1)))
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], 10_000)
    await publish(world, plan, item(await world.product(1001), (50, 1, 1)))

    tracemalloc.start()
    await world.post(f"/v1/plans/{plan['id']}/propagate", {})
    await world.run("propagation")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    answer = (await world.get(f"/v1/plans/{plan['id']}/propagation")).json
    assert (answer["status"], answer["moved"]) == ("done", 10_000)
    assert (answer["nextCycleCentsBefore"], answer["nextCycleCentsAfter"]) == (330 * 10_000, 501 * 10_000)
    remaining = await world.sql("SELECT count(*) AS remaining FROM subscription WHERE plan_version <> 2")
    assert remaining[0]["remaining"] == 0
    assert peak_bytes < 8_000_000, "the rows and events of one batch, not of all subscribers"


async def test_the_answer_of_a_propagation_shows_one_state(world: World) -> None:
    """While the API reads the rows for its answer, another transaction adds a skipped subscriber. [D-122, D-141]"""
    plan = await world.plan()
    subscription = await world.enroll(plan)
    await publish(world, plan, await world.product())
    async with reads_held(world, "propagation_skip") as holder:
        asked = asyncio.create_task(propagate(world, plan))
        await until_waiting(world)
        await holder.execute(
            "INSERT INTO propagation_skip SELECT account_id, propagation_id, $1, 'failed' FROM propagation",
            subscription["id"],
        )
    answer = await asked
    assert (answer["moved"], answer["skipped"]) == (1, [])
