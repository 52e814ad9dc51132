"""A second subscription of a customer to the same plan is created, and the answer has a warning."""

from tests.support.world import World, subscription_body

CUSTOMER = {"externalRef": "ana-1", "name": "Ana", "email": "ana@example.com"}


async def test_a_second_subscription_to_the_plan_has_a_warning(world: World) -> None:
    """[D-254]"""
    plan, other_plan = await world.plan(), await world.plan()
    first = await world.enroll(plan, customer=CUSTOMER)
    elsewhere = await world.enroll(other_plan, customer=CUSTOMER)
    assert "warnings" not in first | elsewhere

    second = await world.enroll(plan, customer=CUSTOMER)

    (warning,) = second["warnings"]
    assert (warning["code"], warning["subscriptionIds"]) == ("already_subscribed", [first["id"]])
    assert "/cancel" in warning["detail"]
    shown = (await world.get(f"/v1/subscriptions/{second['id']}")).json
    assert shown == {name: value for name, value in second.items() if name != "warnings"}
    created = (await world.events("subscription.created"))[-1]["data"]["subscription"]
    assert created == shown

    await world.made(f"/v1/subscriptions/{first['id']}/cancel")
    await world.made(f"/v1/subscriptions/{second['id']}/cancel")
    assert "warnings" not in await world.enroll(plan, customer=CUSTOMER)


async def test_a_replayed_request_repeats_the_warning(world: World) -> None:
    """[D-254, D-14]"""
    plan = await world.plan()
    await world.enroll(plan, customer=CUSTOMER)
    body = subscription_body(plan, customer=CUSTOMER)
    answers = [await world.post("/v1/subscriptions", body, key="once") for _ in range(2)]
    assert answers[0].body == answers[1].body
    assert answers[0].json["warnings"]
