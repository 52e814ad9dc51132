"""Archiving, unarchiving and repricing products (spec 2.2, 3.1, 4.2)."""

from datetime import datetime, timedelta

from tests.support.expect import INSTANT, problem
from tests.support.world import World, plan_body


async def test_a_product_is_archived_and_restored(world: World):
    """[spec 4.2 POST /v1/products/{productId}/archive 200, spec 4.2 POST /v1/products/{productId}/unarchive 200]
    [D-18]
    """
    product = await world.product()
    path = f"/v1/products/{product['id']}"

    archived = await world.post(f"{path}/archive")
    assert INSTANT.fullmatch(archived.json["archivedAt"])
    assert (archived.status, archived.json) == (200, {**product, "archivedAt": archived.json["archivedAt"]})
    await world.advance(days=1)
    again = await world.post(f"{path}/archive", {})
    assert (again.status, again.json) == (200, archived.json)
    assert await world.all("/v1/products") == [archived.json]  # [spec 4.2 GET /v1/products 200]

    for _ in range(2):
        answer = await world.post(f"{path}/unarchive")
        assert (answer.status, answer.json) == (200, product)


async def test_new_plans_cannot_use_an_archived_product(world: World):
    """[spec 3.1 active to archived, spec 3.1 archived to active]"""
    product = await world.product()
    await world.post(f"/v1/products/{product['id']}/archive")
    answer = await world.post("/v1/plans", plan_body(product))
    assert problem(answer)[:2] == (409, "engine.product_archived")

    await world.post(f"/v1/products/{product['id']}/unarchive")
    assert (await world.post("/v1/plans", plan_body(product))).status == 201


async def test_a_new_price_applies_to_the_next_invoice(world: World):
    """[spec 4.2 new price, spec 2.2 monthly price]"""
    product = await world.product(5000)
    subscription = await world.enroll(await world.plan(product, periodMonths=3))
    await world.advance(days=4)
    billed = await world.invoices(subscription)

    await world.patch(f"/v1/products/{product['id']}", {"monthlyPriceCents": 7000})
    await world.run()
    assert await world.invoices(subscription) == billed
    await world.advance(days=95)

    assert [invoice["totalCents"] for invoice in await world.invoices(subscription)] == [15_000, 21_000]


async def test_a_product_cannot_be_deleted(world: World):
    """[spec 3.1 never deleted]"""
    product = await world.product()
    answer = await world.delete(f"/v1/products/{product['id']}")

    assert problem(answer) == (405, "engine.method_not_allowed", None)
    assert await world.all("/v1/products") == [product]


async def test_instants_are_of_the_account_s_clock(world: World):
    """[spec 2.1 instants]"""
    early = await world.product()
    await world.advance(days=400)
    late = await world.product()

    apart = datetime.fromisoformat(late["createdAt"]) - datetime.fromisoformat(early["createdAt"])
    assert timedelta(days=400) <= apart < timedelta(days=400, minutes=5)
