"""A subscription's `externalRef`, an id that the client assigns (D-17)."""

import pytest

from tests.support.world import Json, World, subscription_body

GRAPE = "\U0001f347"


async def test_every_answer_and_event_shows_the_reference(world: World):
    """[D-17, D-37]"""
    plan = await world.plan()
    made = await world.enroll(plan, externalRef="contract-7")
    path = f"/v1/subscriptions/{made['id']}"
    await world.run()
    terms = {name: plan[name] for name in ("periodMonths", "defaultPaymentMethod", "items")}
    customized = await world.made(f"{path}/customize", terms)
    canceled = await world.made(f"{path}/cancel")

    shown: list[Json] = [made, customized, canceled, (await world.get(path)).json]
    shown += (await world.get("/v1/subscriptions")).json["data"]
    emitted = await world.events()
    shown += [event["data"]["subscription"] for event in emitted if event["type"].startswith("subscription.")]
    assert [each["externalRef"] for each in shown] == ["contract-7"] * 8
    invoices = [event["data"]["invoice"] for event in emitted if event["type"].startswith("invoice.")]
    assert [each["subscriptionExternalRef"] for each in invoices] == ["contract-7"] * 2
    assert await world.broken() == []


async def test_a_missing_reference_is_null(world: World):
    """[D-17, spec 2.1 nulls]"""
    plan = await world.plan()
    made = [await world.enroll(plan), await world.enroll(plan, externalRef=None)]
    await world.run("generation")
    assert [each["externalRef"] for each in made] == [None, None]
    emitted = await world.events("invoice.created")
    assert [event["data"]["invoice"]["subscriptionExternalRef"] for event in emitted] == [None, None]


async def test_two_subscriptions_may_share_a_reference(world: World):
    """[D-17]"""
    plan = await world.plan()
    made = [await world.enroll(plan, externalRef="contract-7") for _ in range(2)]
    found = (await world.get("/v1/subscriptions?externalRef=contract-7")).json["data"]
    assert [each["id"] for each in found] == [made[1]["id"], made[0]["id"]]


@pytest.mark.parametrize("ref", ["x", GRAPE * 120, " x ", "a/b?c=d&e%20f"])
async def test_a_reference_of_1_to_120_characters_is_kept_as_sent(world: World, ref):
    """[D-17, spec 2.1 externalRef]"""
    assert (await world.enroll(await world.plan(), externalRef=ref))["externalRef"] == ref


async def test_another_reference_makes_another_request(world: World):
    """[D-17, D-14]"""
    body = subscription_body(await world.plan())
    first = await world.post("/v1/subscriptions", body | {"externalRef": "a"}, key="k")
    other = await world.post("/v1/subscriptions", body | {"externalRef": "b"}, key="k")
    again = await world.post("/v1/subscriptions", body | {"externalRef": "a"}, key="k")
    assert (first.status, again.body) == (201, first.body)
    assert (other.status, other.type) == (422, "engine.idempotency_key_reused")
