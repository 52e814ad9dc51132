"""Concurrent requests and billing runs on subscriptions, customers and terms (spec 4.4)."""

import asyncio
from collections import Counter

from tests.support.world import Answer, Json, World, item, plan_body, subscription_body

CUSTOMER = {"externalRef": "c-1", "name": "Ana", "email": "ana@example.com", "document": "529.982.247-25"}


def statuses(answers: list[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


async def test_concurrent_subscriptions_create_one_customer(world: World):
    """[D-15, spec 4.4 customer]"""
    plan = await world.plan()
    body = {"planId": plan["id"], "customer": CUSTOMER}
    answers = await asyncio.gather(*(world.post("/v1/subscriptions", body) for _ in range(12)))
    assert statuses(answers) == {201: 12}
    assert len({answer.json["customer"]["id"] for answer in answers}) == 1
    assert (await world.get("/v1/customers")).json["pagination"]["totalRecords"] == 1
    assert await world.broken() == []


async def test_a_concurrent_enrollment_bills_the_version_that_it_returned(world: World):
    """[spec 2.4 planVersion, spec 9.2]"""
    products = [await world.product(cents) for cents in (100, 200, 300, 400)]
    plan = await world.plan(products[0])
    puts = [world.put(f"/v1/plans/{plan['id']}", plan_body(each)) for each in products[1:]]
    posts = [world.post("/v1/subscriptions", subscription_body(plan)) for _ in range(12)]
    answers = await asyncio.gather(*posts[:4], *puts, *posts[4:])
    assert set(statuses(answers)) == {200, 201}
    version_of = {
        each["items"][0]["productId"]: each["version"] for each in (answer.json for answer in answers[4:7])
    }
    price_of = {version_of.get(each["id"], 1): each["monthlyPriceCents"] for each in products}
    assert sorted(price_of) == [1, 2, 3, 4]
    await world.run("generation")
    for made in (answer.json for answer in (*answers[:4], *answers[7:])):
        [invoice] = await world.invoices(made)
        assert invoice["totalCents"] == price_of[made["planVersion"]]


async def test_no_enrollment_succeeds_after_a_concurrent_archiving(world: World):
    """[spec 4.4 POST /v1/subscriptions 409]"""
    plan = await world.plan()
    posts = [world.post("/v1/subscriptions", subscription_body(plan)) for _ in range(12)]
    archived, *answers = await asyncio.gather(world.post(f"/v1/plans/{plan['id']}/archive"), *posts)
    assert archived.status == 200
    assert set(statuses(answers)) <= {201, 409}
    assert len(await world.all("/v1/subscriptions")) == statuses(answers)[201]
    assert (await world.post("/v1/subscriptions", subscription_body(plan))).status == 409


async def test_terms_and_a_concurrent_archiving_of_their_product_exclude_each_other(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/customize 409]"""
    product, other = await world.product(), await world.product()
    subscription = await world.enroll(await world.plan(other))
    terms = {"periodMonths": 1, "defaultPaymentMethod": "pix", "items": [item(product)]}
    path = f"/v1/subscriptions/{subscription['id']}/customize"
    archived, *answers = await asyncio.gather(
        world.post(f"/v1/products/{product['id']}/archive"), *(world.post(path, terms) for _ in range(6))
    )
    assert archived.status == 200
    assert set(statuses(answers)) <= {200, 409}
    assert (await world.post(path, terms)).status == 409


async def test_concurrent_changes_leave_one_whole_invoice_per_cycle(world: World):
    """[D-6, D-28]"""
    cheap, dear = await world.product(100), await world.product(5000)
    subscriptions = [await world.enroll(await world.plan(cheap)) for _ in range(6)]

    def acts(of: Json) -> list[asyncio.Task[Answer]]:
        path = f"/v1/subscriptions/{of['id']}"
        terms = {"periodMonths": 3, "defaultPaymentMethod": "boleto", "items": [item(dear), item(cheap)]}
        calls = (
            world.post(f"{path}/customize", terms),
            world.get(f"{path}/preview"),
            world.post(f"{path}/cancel"),
            world.post(f"{path}/customize", terms),
        )
        return [asyncio.ensure_future(call) for call in calls]

    tasks = [task for each in subscriptions for task in acts(each)]
    runs = [world.run("generation") for _ in range(3)]
    await asyncio.gather(*runs)
    answers = await asyncio.gather(*tasks)
    assert set(statuses(answers)) <= {200, 409}
    await world.run()
    for each in subscriptions:
        billed = [(one["totalCents"], one["paymentMethod"]) for one in await world.invoices(each)]
        assert billed in ([], [(100, "pix")], [(15_300, "boleto")])
    assert await world.broken() == []
