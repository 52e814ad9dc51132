"""Creating, reading, listing, publishing and archiving plans (spec 2.3, 3.2, 4.3)."""

import re

import pytest

from tests.support.expect import INSTANT, UNKNOWN_ID, invalid, problem
from tests.support.world import World, item, plan_body, subscription_body

UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OFFER = {"periodMonths": 12, "defaultPaymentMethod": "card", "maxInstallments": 12, "commitmentCycles": 2}


async def test_a_new_plan_has_all_its_fields(world: World):
    """[spec 4.3 POST /v1/plans 201, spec 2.3 plan, spec 2.3 items, spec 2.3 discounts, spec 2.3 version]"""
    gym, pool = await world.product(), await world.variable_product()
    created = await world.post(
        "/v1/plans",
        plan_body(item(gym, (100, 2, 2), (5, 1, None)), item(pool), item(gym), **OFFER, name="Year"),
    )
    plan = created.json

    assert created.status == 201
    assert plan == {
        "id": plan["id"],
        "name": "Year",
        "version": 1,
        **OFFER,
        "archivedAt": None,
        "createdAt": plan["createdAt"],
        "items": [
            {
                "productId": gym["id"],
                "position": 0,  # [D-18] positions start at 0
                "discounts": [
                    {"percent": 100, "fromCycle": 2, "toCycle": 2},
                    {"percent": 5, "fromCycle": 1, "toCycle": None},
                ],
            },
            {"productId": pool["id"], "position": 1, "discounts": []},
            {"productId": gym["id"], "position": 2, "discounts": []},  # [D-18a] a product may occur twice
        ],
    }
    assert UUID_TEXT.fullmatch(plan["id"])
    assert INSTANT.fullmatch(plan["createdAt"])


async def test_optional_fields_have_defaults(world: World):
    """[spec 8 maxInstallments, spec 4.3 commitmentCycles]"""
    product = await world.product()
    discount = {"percent": 5, "fromCycle": 1}  # [spec 4.3 toCycle]
    items = [{"productId": product["id"]}, {"productId": product["id"], "discounts": [discount]}]

    plan = await world.made("/v1/plans", plan_body() | {"items": items})

    assert (plan["maxInstallments"], plan["commitmentCycles"]) == (1, None)
    assert [each["discounts"] for each in plan["items"]] == [[], [{**discount, "toCycle": None}]]


async def test_only_the_detail_shows_items(world: World):
    """[spec 2.3 plan]"""
    plan = await world.plan()
    bare = {name: value for name, value in plan.items() if name != "items"}

    # [spec 4.3 GET /v1/plans/{planId} 200]
    assert (await world.get(f"/v1/plans/{plan['id']}")).json == plan
    # [spec 4.3 GET /v1/plans 200]
    assert (await world.get("/v1/plans")).json["data"] == [bare]
    # [spec 4.3 POST /v1/plans/{planId}/archive 200]
    archived = await world.post(f"/v1/plans/{plan['id']}/archive")
    assert (archived.status, archived.json) == (200, bare | {"archivedAt": archived.json["archivedAt"]})
    assert INSTANT.fullmatch(archived.json["archivedAt"])


async def test_publishing_makes_the_next_version(world: World):
    """[spec 4.3 PUT /v1/plans/{planId} 200, spec 4.3 complete offer, spec 2.3 version, D-19]"""
    gym, pool = await world.product(), await world.product()
    first = await world.plan(item(gym, (50, 1, None)), pool, name="Year", **OFFER)
    sent = {**plan_body(pool), "name": "Month"}

    published = await world.put(f"/v1/plans/{first['id']}", sent)

    assert published.status == 200
    assert published.json == {
        "id": first["id"],
        "name": "Month",
        "version": 2,
        "periodMonths": 1,
        "defaultPaymentMethod": "pix",
        "maxInstallments": 1,
        "commitmentCycles": None,
        "archivedAt": None,
        "createdAt": first["createdAt"],
        "items": [{"productId": pool["id"], "position": 0, "discounts": []}],
    }
    assert (await world.get(f"/v1/plans/{first['id']}")).json == published.json
    third = (await world.put(f"/v1/plans/{first['id']}", sent)).json  # equal terms also become a new version
    assert third == {**published.json, "version": 3}
    assert [plan["version"] for plan in await world.all("/v1/plans")] == [3]


async def test_a_plan_that_was_read_can_be_sent_back(world: World):
    """The engine refuses an item whose `position` differs from the item's index in `items`. [D-18a]"""
    product = await world.product()
    plan = await world.plan(item(product, (5, 1, None), (7, 3, 4)), product)
    terms = {name: plan[name] for name in plan_body() | {"maxInstallments": 1, "commitmentCycles": None}}

    sent_back = await world.put(f"/v1/plans/{plan['id']}", terms)
    assert (sent_back.status, sent_back.json) == (200, {**plan, "version": 2})

    swapped = [each | {"position": 1 - each["position"]} for each in plan["items"]]
    refused = await world.put(f"/v1/plans/{plan['id']}", terms | {"items": swapped})
    assert sorted(invalid(refused)) == ["items[0].position", "items[1].position"]
    assert (await world.get(f"/v1/plans/{plan['id']}")).json == sent_back.json


async def test_an_archived_plan_takes_no_subscribers_or_versions(world: World):
    """[spec 3.2 plan active to archived, spec 7 409 archived plan, spec 7 engine.plan_archived, D-19]"""
    plan = await world.plan(await world.product(1000))
    subscription = await world.enroll(plan)
    path = f"/v1/plans/{plan['id']}"
    archived = (await world.post(f"{path}/archive")).json
    await world.advance(days=4)

    for refused in (
        await world.post("/v1/subscriptions", subscription_body(plan)),
        await world.put(path, plan_body(await world.product())),
    ):
        assert problem(refused)[:2] == (409, "engine.plan_archived")
    assert problem(await world.post(f"{path}/unarchive"))[:2] == (404, "engine.not_found")
    again = await world.post(f"{path}/archive")
    assert (again.status, again.json) == (200, archived)
    assert (await world.get(path)).json == {**plan, "archivedAt": archived["archivedAt"]}
    assert await world.all("/v1/plans") == [archived]
    assert [invoice["totalCents"] for invoice in await world.invoices(subscription)] == [1000]
    assert len(await world.all("/v1/subscriptions")) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),  # [spec 4.3 GET /v1/plans/{planId} 404]
        ("PUT", "", plan_body({"productId": UNKNOWN_ID})),  # [spec 4.3 PUT /v1/plans/{planId} 404]
        ("POST", "/archive", None),  # [spec 4.3 POST /v1/plans/{planId}/archive 404]
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_unknown_plan_is_a_404(shared_world: World, method, path, body):
    """[spec 7 404]"""
    answer = await shared_world.call(method, f"/v1/plans/{UNKNOWN_ID}{path}", body)

    assert problem(answer) == (404, "engine.not_found", None)


@pytest.mark.faults
async def test_the_first_matching_discount_applies_to_each_cycle(world: World):
    """[spec 2.3 discount resolution, spec 2.3 amount]"""
    rules = [(50, 2, 2), (10, 1, 3), (100, 5, None), (1, 6, 6)]
    plan = await world.plan(item(await world.product(333), *rules), periodMonths=3)
    subscription = await world.enroll(plan)

    await world.advance(days=31 * 16)

    percents = [10, 50, 10, None, 100, 100]
    cents = [899, 500, 899, 999, 0, 0]  # the full price is 999; half of it, 499.5, is rounded up
    invoices = await world.invoices(subscription)
    details = [(await world.get(f"/v1/invoices/{each['id']}")).json["items"][0] for each in invoices[:6]]
    assert [line["discountPercent"] for line in details] == percents
    assert [line["amountCents"] for line in details] == cents
    assert {line["months"] for line in details} == {3}
