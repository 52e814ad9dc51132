"""Creating, reading, listing and changing products (spec 2.2, 4.2)."""

import re

import pytest

from tests.support.expect import INSTANT, UNKNOWN_ID, invalid, problem
from tests.support.world import World

UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FIXED = {"mode": "fixed", "monthlyPriceCents": 9990}
ENDPOINT = {"mode": "endpoint", "url": "https://merchant.example/prices", "capCents": 50_000}
NO_PRICE = {"monthlyPriceCents": None, "endpointUrl": None, "capCents": None}


@pytest.mark.parametrize(
    ("pricing", "shown"),
    [
        # [spec 4.2 pricing fixed]
        (FIXED, {"pricingMode": "fixed", "monthlyPriceCents": 9990}),
        ({"mode": "fixed", "monthlyPriceCents": 0}, {"pricingMode": "fixed", "monthlyPriceCents": 0}),
        # [spec 4.2 pricing endpoint]
        (
            ENDPOINT,
            {"pricingMode": "endpoint", "endpointUrl": "https://merchant.example/prices", "capCents": 50_000},
        ),
    ],
)
async def test_every_route_answers_the_whole_product(world: World, pricing, shown):
    """[spec 2.2 product, spec 2.2 pricingMode, spec 2.1 nulls, spec 2.1 money, spec 4.2 POST /v1/products 201]
    [spec 4.2 GET /v1/products/{productId} 200, spec 4.2 GET /v1/products 200]
    """
    before = (await world.get("/v1/test-clock")).json["now"]
    created = await world.post("/v1/products", {"name": "Gym", "pricing": pricing})
    product = created.json

    assert created.status == 201
    assert created.headers["content-type"] == "application/json"
    rest = {"name": "Gym", "description": None, "externalRef": None, "archivedAt": None}
    assert product == {
        "id": product["id"],
        **rest,
        **NO_PRICE,
        **shown,
        "createdAt": product["createdAt"],
    }
    assert UUID_TEXT.fullmatch(product["id"])  # [spec 2.1 ids]
    assert INSTANT.fullmatch(product["createdAt"])  # [spec 2.1 instants]
    assert before <= product["createdAt"] <= (await world.get("/v1/test-clock")).json["now"]

    path = f"/v1/products/{product['id']}"
    for answer in (
        await world.get(path),
        await world.patch(path, {}),
        await world.patch(path, {"name": "Gym"}),
        await world.post(f"{path}/unarchive"),
    ):
        assert (answer.status, answer.json) == (200, product)
    assert (await world.get("/v1/products")).json["data"] == [product]


async def test_text_is_stored_as_sent(world: World):
    """[D-11, spec 2.1 externalRef]"""
    sent = {"name": " Açaí 🍇 ", "description": "", "externalRef": " A/1 "}

    product = await world.made("/v1/products", {**sent, "pricing": FIXED})

    assert {name: product[name] for name in sent} == sent
    twin = await world.product(externalRef=" A/1 ")  # [D-18] an externalRef need not be unique
    assert (twin["externalRef"], twin["id"] != product["id"]) == (" A/1 ", True)


@pytest.mark.parametrize(
    ("pricing", "paths"),
    [
        ({"mode": "fixed"}, ["pricing.monthlyPriceCents"]),  # [spec 4.2 pricing fixed]
        ({"mode": "fixed", "monthlyPriceCents": -1}, ["pricing.monthlyPriceCents"]),
        ({"mode": "fixed", "monthlyPriceCents": None}, ["pricing.monthlyPriceCents"]),
        ({**FIXED, "capCents": 1}, ["pricing.capCents"]),
        ({"mode": "endpoint"}, ["pricing.capCents", "pricing.url"]),  # [spec 4.2 pricing endpoint]
        ({**ENDPOINT, "capCents": 0}, ["pricing.capCents"]),
        ({**ENDPOINT, "capCents": -1}, ["pricing.capCents"]),
        ({**ENDPOINT, "url": "http://merchant.example/prices"}, ["pricing.url"]),
        ({**ENDPOINT, "url": "ftp://merchant.example"}, ["pricing.url"]),
        ({**ENDPOINT, "url": "https://localhost/prices"}, ["pricing.url"]),
        ({**ENDPOINT, "url": "https://169.254.169.254/latest"}, ["pricing.url"]),
        ({**ENDPOINT, "url": "https://user:pw@merchant.example"}, ["pricing.url"]),
        ({**ENDPOINT, "url": "merchant.example"}, ["pricing.url"]),
        ({**ENDPOINT, "url": None}, ["pricing.url"]),
        ({**ENDPOINT, "monthlyPriceCents": 1}, ["pricing.monthlyPriceCents"]),
        ({"mode": "free"}, ["pricing.mode"]),
        ({}, ["pricing.mode"]),
        (None, ["pricing"]),
        ([FIXED], ["pricing"]),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_pricing_has_the_fields_of_its_mode_only(shared_world: World, pricing, paths):
    """[spec 2.2 pricingMode, spec 4.2 POST /v1/products 400]"""
    before = await shared_world.all("/v1/products")
    answer = await shared_world.post("/v1/products", {"name": "Gym", "pricing": pricing})

    assert sorted(invalid(answer)) == paths
    assert await shared_world.all("/v1/products") == before


async def test_a_patch_changes_only_the_fields_sent(world: World):
    """[spec 4.2 PATCH /v1/products/{productId} 200]"""
    fixed = await world.product(description="old", externalRef="A")
    variable = await world.variable_product()
    for product, change in [
        (fixed, {"name": "Pool"}),
        (fixed, {"description": "new"}),
        (fixed, {"description": None}),
        (fixed, {"monthlyPriceCents": 0}),
        (fixed, {"name": "Gym", "monthlyPriceCents": 5}),
        (variable, {"endpointUrl": "https://other.example/x?y=1"}),
        (variable, {"capCents": 1}),
    ]:
        product.update(change)
        answer = await world.patch(f"/v1/products/{product['id']}", change)
        assert (answer.status, answer.json) == (200, product)
    assert await world.all("/v1/products") == [fixed, variable]


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        ({"name": ""}, ["name"]),
        ({"name": None}, ["name"]),
        ({"name": "x" * 121}, ["name"]),
        ({"description": "x" * 501}, ["description"]),
        ({"monthlyPriceCents": -1}, ["monthlyPriceCents"]),
        ({"monthlyPriceCents": None}, ["monthlyPriceCents"]),
        ({"externalRef": "B"}, ["externalRef"]),
        ({"archivedAt": None, "id": UNKNOWN_ID}, ["archivedAt", "id"]),
        ({"capCents": 0}, ["capCents"]),
        ({"endpointUrl": "http://merchant.example"}, ["endpointUrl"]),
        ({"endpointUrl": None, "name": 7}, ["endpointUrl", "name"]),
        ([], [""]),
        ("name", [""]),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_patch_outside_the_limits_changes_nothing(shared_world: World, product, change, paths):
    """[spec 4.2 PATCH /v1/products/{productId} 400]"""
    path = f"/v1/products/{product['id']}"
    with_a_valid_field = {"description": "good"} | change if isinstance(change, dict) else change

    answer = await shared_world.patch(path, with_a_valid_field)

    assert sorted(invalid(answer)) == paths
    assert (await shared_world.get(path)).json == product


@pytest.mark.parametrize(
    ("mode", "change", "refused"),
    [
        ("fixed", {"endpointUrl": "https://merchant.example/x"}, ["endpointUrl"]),
        ("fixed", {"capCents": 5, "name": "Pool"}, ["capCents"]),
        ("fixed", {"pricingMode": "endpoint"}, ["pricingMode"]),
        ("fixed", {"pricingMode": "fixed"}, ["pricingMode"]),
        (
            "fixed",
            {"pricing": FIXED, "endpointUrl": "https://merchant.example/x"},
            ["endpointUrl", "pricing"],
        ),
        ("fixed", {"pricing": None}, ["pricing"]),
        ("endpoint", {"monthlyPriceCents": 5}, ["monthlyPriceCents"]),
        ("endpoint", {"pricing": ENDPOINT}, ["pricing"]),
        ("endpoint", {"pricingMode": "fixed", "monthlyPriceCents": 5}, ["monthlyPriceCents", "pricingMode"]),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_pricing_mode_never_changes(shared_world: World, mode, change, refused):
    """[spec 3.1 pricing mode, spec 7 409 pricing mode, D-18, spec 4.2 PATCH /v1/products/{productId} 409]"""
    product = await (shared_world.product() if mode == "fixed" else shared_world.variable_product())

    answer = await shared_world.patch(f"/v1/products/{product['id']}", change)

    status, type_, meta = problem(answer)
    assert (status, type_, meta["pricingMode"]) == (409, "engine.pricing_mode_immutable", mode)
    assert [field["path"] for field in meta["fields"]] == refused
    assert (await shared_world.get(f"/v1/products/{product['id']}")).json == product


@pytest.mark.parametrize(
    ("mode", "pricing", "advice"),
    [
        ("fixed", FIXED, "send monthlyPriceCents at the top level, without pricing"),
        ("fixed", ENDPOINT, "create another product instead"),
        ("fixed", "fixed", "create another product instead"),
        ("endpoint", ENDPOINT, "send capCents and endpointUrl at the top level, without pricing"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_same_pricing_mode_gets_other_advice(shared_world: World, mode, pricing, advice):
    """[D-18]"""
    product = await (shared_world.product() if mode == "fixed" else shared_world.variable_product())

    answer = await shared_world.patch(f"/v1/products/{product['id']}", {"pricing": pricing})

    named = {"fixed": "a fixed product", "endpoint": "an endpoint product"}[mode]
    assert answer.json["detail"].endswith(f"{advice}.")
    assert answer.json["meta"]["fields"] == [{"path": "pricing", "message": f"cannot be changed on {named}"}]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),  # [spec 4.2 GET /v1/products/{productId} 404]
        ("PATCH", "", {"name": "Pool"}),  # [spec 4.2 PATCH /v1/products/{productId} 404]
        ("PATCH", "", {"pricingMode": "fixed"}),  # the 404 comes before the 409 [D-10]
        ("POST", "/archive", None),  # [spec 4.2 POST /v1/products/{productId}/archive 404]
        ("POST", "/unarchive", None),  # [spec 4.2 POST /v1/products/{productId}/unarchive 404]
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_unknown_product_is_a_404(shared_world: World, method, path, body):
    """[spec 7 404]"""
    answer = await shared_world.call(method, f"/v1/products/{UNKNOWN_ID}{path}", body)

    assert problem(answer) == (404, "engine.not_found", None)
    assert UNKNOWN_ID in answer.json["detail"]
