"""The limits of the fields of products and plans, and values of wrong types (spec 8, D-8)."""

import json
from typing import Any

import pytest

from tests.support.expect import invalid
from tests.support.world import Answer, Json, World, plan_body

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST_CENTS = 999_999_999_999
GRAPE = "🍇"
"""One code point, but two UTF-16 units and four UTF-8 bytes. Limits of texts count code points (D-11)."""


def product_body(**fields: Json) -> Json:
    """Return a request body that creates a product with a fixed price. `fields` replace or add fields."""
    return {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 1}, **fields}


def fixed(cents: Json) -> Json:
    """Return a request body that creates a product with this fixed price."""
    return product_body(pricing={"mode": "fixed", "monthlyPriceCents": cents})


def capped(cents: Json) -> Json:
    """Return a request body that creates a variable product with this cap."""
    url = "https://merchant.example/x"
    return product_body(pricing={"mode": "endpoint", "url": url, "capCents": cents})


async def refused(world: World, path: str, body: Json, fields: list[str]) -> None:
    """Send a body that must be refused for exactly these fields. Check that nothing is stored."""
    before = (await world.get(path)).json["pagination"]
    assert sorted(invalid(await world.post(path, body))) == fields
    assert (await world.get(path)).json["pagination"] == before


@pytest.mark.parametrize(
    "body",
    [
        product_body(name="x"),  # [spec 8 product name]
        product_body(name=GRAPE * 120),
        product_body(name=" " * 119 + "x"),
        product_body(description=""),  # [spec 8 product description]
        product_body(description=" "),
        product_body(description=GRAPE * 500),
        product_body(description=None),
        product_body(externalRef="x"),  # [spec 8 product externalRef]
        product_body(externalRef=GRAPE * 120),
        product_body(externalRef=None),
        fixed(0),  # [D-8, spec 2.1 money]
        fixed(MOST_CENTS),
        capped(1),
        capped(MOST_CENTS),
    ],
)
async def test_a_product_at_its_limits_is_accepted(shared_world: World, body):
    """[D-11]"""
    answer = await shared_world.post("/v1/products", body)

    assert answer.status == 201
    sent = {name: value for name, value in {**body, **body["pricing"]}.items() if name in answer.json}
    assert sent.items() <= answer.json.items()


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (product_body(name=""), ["name"]),  # [spec 8 product name]
        (product_body(name=" \t\u00a0\u2003"), ["name"]),
        (product_body(name="x" * 121), ["name"]),
        (product_body(name=None), ["name"]),
        (product_body(name=7), ["name"]),
        (product_body(description="x" * 501), ["description"]),  # [spec 8 product description]
        (product_body(description=["x"]), ["description"]),
        (product_body(externalRef=""), ["externalRef"]),  # [spec 8 product externalRef]
        (product_body(externalRef="  "), ["externalRef"]),
        (product_body(externalRef="x" * 121), ["externalRef"]),
        (product_body(externalRef=4711), ["externalRef"]),
        (fixed(-1), ["pricing.monthlyPriceCents"]),
        (fixed(MOST_CENTS + 1), ["pricing.monthlyPriceCents"]),
        (capped(0), ["pricing.capCents"]),
        (capped(MOST_CENTS + 1), ["pricing.capCents"]),
        ({}, ["name", "pricing"]),
        ({"name": "", "pricing": {"mode": "fixed"}, "x": 1}, ["name", "pricing.monthlyPriceCents", "x"]),
    ],
)
async def test_a_product_outside_its_limits_is_refused(shared_world: World, body, fields):
    """[spec 4.2 POST /v1/products 400, spec 7 400, D-11]"""
    await refused(shared_world, "/v1/products", body, fields)


@pytest.mark.parametrize(
    "cents", ["true", "false", "10.0", "1e3", '"10"', "null", "[1]", "1E0", "0.1", "9" * 39]
)
async def test_cents_must_be_written_as_integers(shared_world: World, cents):
    """[D-8, spec 2.1 money]"""
    text = json.dumps(fixed(0)).replace(": 0}", f": {cents}}}").encode()
    answer = await shared_world.post("/v1/products", content=text)

    assert list(invalid(answer)) == ["pricing.monthlyPriceCents"]


def plan_with(product: Json, **fields: Any) -> Json:
    """Return a request body that creates a plan with `count` equal items, each with the given `discounts`."""
    one = {"productId": product["id"], "discounts": fields.pop("discounts", [])}
    items = [one] * fields.pop("count", 1)
    return plan_body() | {"items": items} | fields


def rule(percent: Json = 5, start: Json = 1, end: Json = None) -> Json:
    return {"percent": percent, "fromCycle": start, "toCycle": end}


def card(installments: Json) -> Json:
    return {"defaultPaymentMethod": "card", "maxInstallments": installments}


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "x"},  # [spec 8 plan name]
        {"name": GRAPE * 120},
        {"count": 1},  # [spec 8 plan items]
        {"count": 20},
        {"discounts": [rule()] * 20},  # [spec 8 discount rules]
        {"discounts": [rule(1), rule(100)]},  # [spec 8 discount percent]
        {"discounts": [rule(start=7, end=7), rule(start=2_147_483_647)]},  # [spec 4.3 toCycle]
        card(1),  # [spec 8 maxInstallments]
        card(12),
        *[{"periodMonths": months} for months in (1, 3, 6, 12)],  # [spec 8 periodMonths]
        {"commitmentCycles": None},  # [spec 4.3 commitmentCycles]
        {"commitmentCycles": 1},
        *[{"defaultPaymentMethod": method} for method in ("card", "pix", "boleto")],
    ],
)
async def test_a_plan_at_its_limits_is_accepted(shared_world: World, product, fields):
    """[spec 4.3 POST /v1/plans 201]"""
    body = plan_with(product, **fields)
    answer = await shared_world.post("/v1/plans", body)

    assert answer.status == 201
    places = [each | {"position": place} for place, each in enumerate(body["items"])]
    assert (body | {"items": places}).items() <= answer.json.items()


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"name": ""}, ["name"]),  # [spec 8 plan name]
        ({"name": "\n"}, ["name"]),
        ({"name": "x" * 121}, ["name"]),
        ({"count": 0}, ["items"]),  # [spec 8 plan items]
        ({"count": 21}, ["items"]),
        ({"items": None}, ["items"]),
        ({"items": [{}]}, ["items[0].productId"]),
        ({"items": [{"productId": "gym"}]}, ["items[0].productId"]),
        ({"items": ["gym"]}, ["items[0]"]),
        ({"discounts": [rule()] * 21}, ["items[0].discounts"]),  # [spec 8 discount rules]
        ({"discounts": None}, ["items[0].discounts"]),
        (
            {"discounts": [rule(0), rule(101)]},
            ["items[0].discounts[0].percent", "items[0].discounts[1].percent"],
        ),
        ({"discounts": [rule(12.5)]}, ["items[0].discounts[0].percent"]),  # [spec 8 discount percent]
        ({"discounts": [rule(start=0)]}, ["items[0].discounts[0].fromCycle"]),  # [spec 4.3 fromCycle]
        ({"discounts": [rule(start=None)]}, ["items[0].discounts[0].fromCycle"]),
        (
            {"discounts": [rule(), rule(start=3, end=2)]},
            ["items[0].discounts[1].toCycle"],
        ),  # [spec 4.3 toCycle]
        ({"discounts": [rule(end=0)]}, ["items[0].discounts[0].toCycle"]),
        (card(0), ["maxInstallments"]),  # [spec 8 maxInstallments]
        (card(13), ["maxInstallments"]),
        (card(None), ["maxInstallments"]),
        *[({"periodMonths": wrong}, ["periodMonths"]) for wrong in (0, 2, 4, 24, -1, True, "1", 1.0, None)],
        ({"commitmentCycles": 0}, ["commitmentCycles"]),  # [spec 4.3 commitmentCycles]
        ({"commitmentCycles": 2_147_483_648}, ["commitmentCycles"]),
        ({"defaultPaymentMethod": "cash"}, ["defaultPaymentMethod"]),
        ({"defaultPaymentMethod": "PIX"}, ["defaultPaymentMethod"]),
        ({"defaultPaymentMethod": None}, ["defaultPaymentMethod"]),
        ({"version": 2, "createdAt": "2034-01-01"}, ["createdAt", "version"]),
    ],
)
async def test_a_plan_outside_its_limits_is_refused(shared_world: World, product, fields, paths):
    """[spec 4.3 POST /v1/plans 400]"""
    body = plan_with(product, **fields)

    await refused(shared_world, "/v1/plans", body, paths)
    plan = await shared_world.plan(product)
    assert sorted(invalid(await shared_world.put(f"/v1/plans/{plan['id']}", body))) == paths
    assert (await shared_world.get(f"/v1/plans/{plan['id']}")).json == plan


async def test_one_answer_lists_every_invalid_field(shared_world: World, product):
    """[D-11]"""
    bad = {"productId": "x", "discounts": [rule(0, 0), rule(5, 9, 8), "rule"], "note": ""}
    body = {"periodMonths": 2, "maxInstallments": 99, "items": [{"productId": product["id"]}, bad]}

    answer: Answer = await shared_world.post("/v1/plans", body)

    assert sorted(invalid(answer)) == [
        "defaultPaymentMethod",
        "items[1].discounts[0].fromCycle",
        "items[1].discounts[0].percent",
        "items[1].discounts[1].toCycle",
        "items[1].discounts[2]",
        "items[1].note",
        "items[1].productId",
        "maxInstallments",
        "name",
        "periodMonths",
    ]
