"""Refused requests to customize a subscription. Such a request changes nothing (spec 4.4 customize; D-10, D-22)."""

from tests.support.expect import UNKNOWN_ID, everything, invalid, problem
from tests.support.sandbox_steps import connection_id
from tests.support.world import Json, World, item


def terms(*items: Json, **fields: Json) -> Json:
    """Return the complete terms of a monthly pix offer with these items."""
    return {"periodMonths": 1, "defaultPaymentMethod": "pix", "items": list(items), **fields}


BAD: list[tuple[str, Json]] = [
    ("periodMonths", {"periodMonths": 2}),
    ("periodMonths", {"periodMonths": None}),
    ("defaultPaymentMethod", {"defaultPaymentMethod": "cash"}),
    ("maxInstallments", {"maxInstallments": 13}),
    ("maxInstallments", {"maxInstallments": 0}),
    ("commitmentCycles", {"commitmentCycles": 0}),
    ("items", {"items": []}),
    ("items", {"items": None}),
    ("items[0].productId", {"items": [{"productId": "x"}]}),
    ("items[0].discounts[0].percent", {"items": [item({"id": UNKNOWN_ID}, (0, 1, None))]}),
    ("items[0].discounts[0].toCycle", {"items": [item({"id": UNKNOWN_ID}, (5, 3, 2))]}),
    ("items[0].position", {"items": [{"productId": UNKNOWN_ID, "position": 1}]}),
    ("name", {"name": "Mine"}),
    ("chargeDay", {"chargeDay": 5}),
]
"""Invalid bodies, each with the path of the invalid field that the 400 response names."""


async def test_each_invalid_field_is_named(world: World):
    """The body has the fields of a plan except its name.
    [spec 4.4 POST /v1/subscriptions/{subscriptionId}/customize 400]
    """
    product = await world.product()
    path = f"/v1/subscriptions/{(await world.enroll(await world.plan(product)))['id']}/customize"
    before = await everything(world)
    for named, fields in BAD:
        refused = invalid(await world.post(path, terms(item(product)) | fields))
        assert (fields, list(refused)) == (fields, [named])
    assert await everything(world) == before


async def test_terms_are_checked_like_a_plans_against_the_pinned_connection(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/customize 404, spec 4.4 rule 5, D-20, D-21, D-18a]
    [spec 4.4 POST /v1/subscriptions/{subscriptionId}/customize 409]
    [spec 4.4 POST /v1/subscriptions/{subscriptionId}/customize 422]
    """
    product, archived, usage = await world.product(), await world.product(), await world.variable_product()
    plan = await world.plan(product)
    await world.set_up_gateway(methods=["pix", "card"], maxInstallments=6)
    pinned = await connection_id(world)
    # This connection supports every method. The checks ignore it, because it does not bill the subscription.
    wide = (await world.connect())["connectionId"]
    subscription = await world.enroll(plan, gatewayConnectionId=pinned)
    overridden = await world.enroll(plan, gatewayConnectionId=pinned, paymentMethod="card")
    await world.enroll(plan, gatewayConnectionId=wide)
    await world.post(f"/v1/products/{archived['id']}/archive")
    issued: Json = {"methods": ["pix", "card"], "maxInstallments": 6}
    option: Json = {"connectionId": pinned, "provider": "sandbox", "label": "Sandbox", **issued}
    unknown = {"productIds": [UNKNOWN_ID]}
    few = {"gatewayMax": 6, "provider": "sandbox"}
    cases: list[tuple[Json, Json, tuple[int, str, Json]]] = [
        (subscription, terms({"productId": UNKNOWN_ID}, item(archived)), (404, "not_found", unknown)),
        (
            subscription,
            terms(item(archived), item(usage, (5, 1, 1))),
            (409, "product_archived", {"productIds": [archived["id"]]}),
        ),
        (
            subscription,
            terms(item(usage, (5, 1, 1)), defaultPaymentMethod="boleto"),
            (422, "discount_on_variable_product", {"productIds": [usage["id"]]}),
        ),
        (
            subscription,
            terms(item(product), defaultPaymentMethod="boleto"),
            (422, "payment_method_unsupported", {"paymentMethod": "boleto", "options": [option]}),
        ),
        (
            subscription,
            terms(item(product), defaultPaymentMethod="card", maxInstallments=7),
            (422, "installments_unsupported", {"maxInstallments": 7, **few}),
        ),
        (
            subscription,
            terms(item(product), maxInstallments=2),
            (422, "installments_unsupported", {"maxInstallments": 2, "gatewayMax": 1, "provider": "sandbox"}),
        ),
        (
            overridden,
            terms(item(product), defaultPaymentMethod="boleto"),
            (422, "payment_method_unsupported", {"paymentMethod": "boleto", "options": [option]}),
        ),
    ]
    before = await everything(world)
    for of, body, (status, code, meta) in cases:
        refused = problem(await world.post(f"/v1/subscriptions/{of['id']}/customize", body))
        assert refused == (status, f"engine.{code}", meta)
    assert await everything(world) == before
    fits = terms(item(product), defaultPaymentMethod="card", maxInstallments=6)
    customized = await world.made(f"/v1/subscriptions/{subscription['id']}/customize", fits)
    assert customized["paymentMethod"] == "card"


async def test_an_override_that_the_connection_no_longer_issues_is_refused(world: World):
    """[D-22, spec 4.4 rule 5]"""
    product = await world.product()
    subscription = await world.enroll(await world.plan(product), paymentMethod="card")
    await world.set_up_gateway(methods=["pix"])
    before = await everything(world)
    refused = await world.post(f"/v1/subscriptions/{subscription['id']}/customize", terms(item(product)))
    status, type_, meta = problem(refused)
    assert (status, type_, meta["paymentMethod"]) == (422, "engine.payment_method_unsupported", "card")
    assert f"{subscription['gatewayConnectionId']} does not issue card" in refused.json["detail"]
    assert await everything(world) == before


async def test_unknown_malformed_and_foreign_ids_are_not_found(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/customize 404]"""
    other = await world.another()
    theirs = await other.enroll(await other.plan())
    body = terms(item(await world.product()))
    for sought in (UNKNOWN_ID, theirs["id"], "x"):
        answer = await world.post(f"/v1/subscriptions/{sought}/customize", body)
        assert problem(answer) == (404, "engine.not_found", None)
    assert (await other.get(f"/v1/subscriptions/{theirs['id']}")).json == theirs
