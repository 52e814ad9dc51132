"""A plan's terms must fit the catalog and the gateway connections (spec 4.3, D-18a, D-20, D-21)."""

import asyncio

import pytest

from fatura.domain.credentials import Mode
from tests.support.expect import UNKNOWN_ID, everything, problem
from tests.support.world import Json, World, item, plan_body


async def offers(world: World, body: Json) -> list[tuple[int, str, Json]]:
    """Send the body twice: to create a plan, and to publish a version of an existing plan. Return both refusals.

    [spec 4.3 PUT /v1/plans/{planId} 422]
    """
    plan = await world.plan()
    before = await everything(world)
    refusals = [
        problem(await world.post("/v1/plans", body)),
        problem(await world.put(f"/v1/plans/{plan['id']}", body)),
    ]
    assert await everything(world) == before
    assert (await world.get(f"/v1/plans/{plan['id']}")).json == plan
    return refusals


async def test_unknown_products_are_named_once(world: World):
    """[D-18a, D-10, spec 5.4]"""
    known, archived = await world.product(), await world.product()
    await world.post(f"/v1/products/{archived['id']}/archive")
    theirs = await (await world.another()).product()
    unknown = [{"productId": theirs["id"]}, {"productId": UNKNOWN_ID}, {"productId": theirs["id"]}]
    body = plan_body(known, *unknown, archived, maxInstallments=12)

    meta = {"productIds": [theirs["id"], UNKNOWN_ID]}
    assert await offers(world, body) == [(404, "engine.not_found", meta)] * 2


async def test_archived_products_are_named(world: World):
    """[spec 4.3 POST /v1/plans 409, spec 4.3 PUT /v1/plans/{planId} 409, spec 7 409 archived product, D-10]"""
    known, gone, usage = await world.product(), await world.product(), await world.variable_product()
    for product in (gone, usage):
        await world.post(f"/v1/products/{product['id']}/archive")
    body = plan_body(item(usage, (5, 1, None)), known, gone, gone, maxInstallments=12)

    meta = {"productIds": [usage["id"], gone["id"]]}
    assert await offers(world, body) == [(409, "engine.product_archived", meta)] * 2


async def test_a_variable_product_takes_no_discount(world: World):
    """[spec 4.3 POST /v1/plans 422 discount, spec 7 422 discount]"""
    fixed, usage = await world.product(), await world.variable_product()
    body = plan_body(item(fixed, (5, 1, None)), item(usage, (1, 9, 9)), usage)

    meta = {"productIds": [usage["id"]]}
    assert await offers(world, body) == [(422, "engine.discount_on_variable_product", meta)] * 2
    assert (await world.post("/v1/plans", plan_body(item(fixed, (5, 1, None)), item(usage)))).status == 201


async def test_an_unsupported_method_lists_what_connections_support(world: World):
    """[spec 4.3 POST /v1/plans 422 method, spec 7 engine.payment_method_unsupported, spec 7 422 unsupported, D-21]"""
    await world.set_up_gateway(methods=["boleto", "pix"], maxInstallments=3)
    await world.connect(methods=["card"], issuesCharges=False)
    inactive = await world.connect(methods=["card"])
    await world.patch(f"/v1/integration/gateways/{inactive['connectionId']}", {"active": False})
    billing = (await world.get("/v1/integration")).json["gateways"][0]
    body = plan_body(await world.product(), defaultPaymentMethod="card", maxInstallments=12)

    option = {
        name: billing[name] for name in ("connectionId", "provider", "label", "methods", "maxInstallments")
    }
    meta = {"paymentMethod": "card", "options": [option]}
    assert (option["methods"], option["maxInstallments"]) == (["boleto", "pix"], 3)
    assert await offers(world, body) == [(422, "engine.payment_method_unsupported", meta)] * 2


async def test_without_a_connection_there_are_no_options(world: World):
    """[D-21, D-44]"""
    product = await world.product()
    gateway = (await world.get("/v1/integration")).json["gateways"][0]
    await world.patch(f"/v1/integration/gateways/{gateway['connectionId']}", {"active": False})
    live = await world.another(Mode.LIVE)

    for merchant, sold in ((world, product), (live, await live.product())):
        answer = await merchant.post("/v1/plans", plan_body(sold))
        meta = {"paymentMethod": "pix", "options": []}
        assert problem(answer) == (422, "engine.payment_method_unsupported", meta)
        assert await merchant.all("/v1/plans") == []


@pytest.mark.parametrize(
    ("connections", "asked", "gateway_max"),
    [
        ([3], 4, 3),
        ([3, 6], 12, 6),  # two connections: the higher maximum applies
        ([6, 3], 12, 6),
        ([1], 2, 1),
    ],
)
async def test_too_many_installments_show_the_best_maximum(world: World, connections, asked, gateway_max):
    """[spec 4.3 POST /v1/plans 422 installments, spec 7 engine.installments_unsupported, spec 7 422 unsupported]
    [D-21]
    """
    await world.set_up_gateway(maxInstallments=connections[0])
    for maximum in connections[1:]:
        await world.connect(maxInstallments=maximum)
    # This connection does not accept cards, so its maximum does not count.
    await world.connect(maxInstallments=12, methods=["pix"])
    product = await world.product()
    body = plan_body(product, defaultPaymentMethod="card", maxInstallments=asked)

    meta = {"maxInstallments": asked, "gatewayMax": gateway_max, "provider": "sandbox"}
    assert await offers(world, body) == [(422, "engine.installments_unsupported", meta)] * 2
    fitting = await world.post("/v1/plans", body | {"maxInstallments": gateway_max})
    assert (fitting.status, fitting.json["maxInstallments"]) == (201, gateway_max)


@pytest.mark.parametrize("method", ["pix", "boleto"])
@pytest.mark.parametrize("installments", [2, 12])
@pytest.mark.asyncio(loop_scope="module")
async def test_pix_and_boleto_have_no_installments(shared_world: World, product, method, installments):
    """[D-20, spec 2.3 payment method]"""
    body = plan_body(product, defaultPaymentMethod=method, maxInstallments=installments)
    before = await shared_world.all("/v1/plans")

    answer = await shared_world.post("/v1/plans", body)

    meta = {"maxInstallments": installments, "gatewayMax": 1, "provider": "sandbox"}
    assert problem(answer) == (422, "engine.installments_unsupported", meta)
    assert await shared_world.all("/v1/plans") == before


@pytest.mark.parametrize("period", [1, 3, 6, 12])
@pytest.mark.asyncio(loop_scope="module")
async def test_installments_do_not_depend_on_the_period(shared_world: World, product, period):
    """[spec 2.3 payment method, spec 8 periodMonths]"""
    body = plan_body(product, defaultPaymentMethod="card", maxInstallments=12, periodMonths=period)

    assert (await shared_world.post("/v1/plans", body)).status == 201


async def test_one_connection_that_supports_the_terms_suffices(world: World):
    """[spec 4.3 one gateway suffices]"""
    await world.set_up_gateway(methods=["pix"])
    await world.connect(methods=["card"], maxInstallments=2)
    product = await world.product()

    for terms in ({"defaultPaymentMethod": "card", "maxInstallments": 2}, {"defaultPaymentMethod": "pix"}):
        answer = await world.post("/v1/plans", plan_body(product, **terms))
        assert answer.status == 201
        assert terms.items() <= answer.json.items()


async def test_one_connection_must_support_method_and_installments(world: World):
    """[spec 4.3 one gateway suffices]"""
    await world.set_up_gateway(methods=["card"], maxInstallments=2)
    await world.connect(methods=["boleto"], maxInstallments=12)
    body = plan_body(await world.product(), defaultPaymentMethod="card", maxInstallments=3)

    meta = {"maxInstallments": 3, "gatewayMax": 2, "provider": "sandbox"}
    assert problem(await world.post("/v1/plans", body)) == (422, "engine.installments_unsupported", meta)


async def test_concurrent_archiving_accepts_or_refuses_a_plan_as_a_whole(world: World):
    """[spec 3.1 active to archived]"""
    product = await world.product()
    body = plan_body(product)

    answers = await asyncio.gather(
        *[world.post("/v1/plans", body) for _ in range(5)],
        world.post(f"/v1/products/{product['id']}/archive"),
        *[world.post("/v1/plans", body) for _ in range(5)],
    )

    archived, made = answers.pop(5), [answer for answer in answers if answer.status == 201]
    assert archived.status == 200
    assert {answer.status for answer in answers} <= {201, 409}
    assert len(await world.all("/v1/plans")) == len(made)
    assert (await world.post("/v1/plans", body)).status == 409
    assert await world.broken() == []


async def test_concurrent_publications_get_consecutive_versions(world: World):
    """[spec 2.3 version]"""
    product = await world.product()
    path = f"/v1/plans/{(await world.plan(product))['id']}"

    answers = await asyncio.gather(*[world.put(path, plan_body(product)) for _ in range(8)])

    assert sorted(answer.json["version"] for answer in answers) == list(range(2, 10))
    assert (await world.get(path)).json["version"] == 9
    assert await world.broken() == []
